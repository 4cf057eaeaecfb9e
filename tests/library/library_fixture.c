#include "library_fixture.h"

#include <glib/gstdio.h>
#include <sys/stat.h>

void remove_tree (const char *path)
{
    g_autoptr (GDir) dir = g_dir_open (path, 0, NULL);
    const char *name;
    while (dir != NULL && (name = g_dir_read_name (dir)) != NULL) {
        g_autofree char *child = g_build_filename (path, name, NULL);
        remove_tree (child);
    }
    (void) g_remove (path);
}

GStrv endpoints_of (const Fixture *self)
{
    g_autoptr (GStrvBuilder) endpoints = g_strv_builder_new ();
    for (unsigned i = 0; i < N_ENDPOINTS; i++) {
        g_autofree char *endpoint = g_strdup_printf ("e%u=file://%s/e%u", i, self->base, i);
        g_strv_builder_add (endpoints, endpoint);
    }
    return g_strv_builder_end (endpoints);
}

void set_up (Fixture *self, gconstpointer code)
{
    g_autoptr (GError) error = NULL;
    self->base = g_dir_make_tmp ("ecfs-library-XXXXXX", NULL);
    self->directory = g_build_filename (self->base, "archive", NULL);
    for (unsigned i = 0; i < N_ENDPOINTS; i++) {
        g_autofree char *path = g_strdup_printf ("%s/e%u", self->base, i);
        g_assert_cmpint (g_mkdir (path, 0700), ==, 0);
    }
    g_auto (GStrv) endpoints = endpoints_of (self);
    ecfs_init (self->directory, code, (const char *const *) endpoints, NULL, "none", &error);
    g_assert_no_error (error);
}

void tear_down (Fixture *self, gconstpointer code)
{
    remove_tree (self->base);
    g_free (self->base);
    g_free (self->directory);
}

void hide_endpoint (const Fixture *self, unsigned i, bool hide)
{
    g_autofree char *path = g_strdup_printf ("%s/e%u", self->base, i);
    g_autofree char *away = g_strconcat (path, ".away", NULL);
    g_assert_cmpint (g_rename (hide ? path : away, hide ? away : path), ==, 0);
}

Ecfs *open_archive (const Fixture *self, unsigned flags)
{
    g_autoptr (GError) error = NULL;
    Ecfs *ecfs = ecfs_open (self->directory, flags, &error);
    g_assert_no_error (error);
    return ecfs;
}

int code_of (GError *error)
{
    int code = error == NULL ? 0 : error->code;
    g_assert_true (error == NULL || error->domain == ECFS_ERROR);
    g_clear_error (&error);
    return code;
}
