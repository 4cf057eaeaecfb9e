#include "fixture.h"

#include "archive/content.h"

#include <glib/gstdio.h>
#include <stdio.h>
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

char *endpoint_path (const Fixture *fixture, unsigned i)
{
    return g_strdup_printf ("%s/e%u", fixture->base, i);
}

EcfsConfig *make_config (const Fixture *fixture, const char *code)
{
    EcfsConfig *config = ecfs_config_new ();
    g_free (config->code);
    config->code = g_strdup (code);
    config->deletion_grace_us = 0;
    for (unsigned i = 0; i < N_ENDPOINTS; i++) {
        g_autofree char *path = endpoint_path (fixture, i);
        g_autofree char *url = g_strconcat ("file://", path, NULL);
        g_autofree char *name = g_strdup_printf ("e%u", i);
        EcfsConfigEndpoint *endpoint = g_new0 (EcfsConfigEndpoint, 1);
        endpoint->spec = ecfs_endpoint_spec_new (name, url);
        endpoint->zone = g_strdup (name);
        g_assert_cmpint (mkdir (path, 0700), ==, 0);
        g_ptr_array_add (config->endpoints, endpoint);
    }
    return config;
}

void reopen (Fixture *fixture)
{
    g_autoptr (GError) error = NULL;
    ecfs_archive_free (fixture->archive);
    fixture->archive = ecfs_archive_open (fixture->directory, 0, &error);
    g_assert_no_error (error);
    (void) ecfs_archive_start (fixture->archive, &error);
    g_assert_no_error (error);
    ecfs_archive_await_session (fixture->archive);
}

static void make (Fixture *fixture, const char *code, void (*adjust) (EcfsConfig *config), EcfsKeeping keeping)
{
    g_autoptr (GError) error = NULL;
    fixture->base = g_dir_make_tmp ("ecfs-archive-XXXXXX", NULL);
    fixture->directory = g_build_filename (fixture->base, "archive", NULL);
    g_autoptr (EcfsConfig) config = make_config (fixture, code);
    if (adjust != NULL)
        adjust (config);
    ecfs_archive_init (fixture->directory, config, keeping, NULL, &error);
    g_assert_no_error (error);
    reopen (fixture);
}

void set_up_adjusted (Fixture *fixture, const char *code, void (*adjust) (EcfsConfig *config))
{
    make (fixture, code, adjust, ECFS_KEEPING_NONE);
}

void set_up (Fixture *fixture, gconstpointer code)
{
    make (fixture, code, NULL, ECFS_KEEPING_NONE);
}

void set_up_keyed (Fixture *fixture, gconstpointer code)
{
    make (fixture, code, NULL, ECFS_KEEPING_FILE);
}

void set_up_shared (Fixture *fixture, gconstpointer code)
{
    make (fixture, code, NULL, ECFS_KEEPING_SPLIT);
}

void tear_down (Fixture *fixture, gconstpointer code)
{
    ecfs_archive_free (fixture->archive);
    remove_tree (fixture->base);
    g_free (fixture->base);
    g_free (fixture->directory);
}

uint64_t make_file (Fixture *fixture, const char *name)
{
    g_autoptr (GError) error = NULL;
    EcfsNewInode inode = {.mode = S_IFREG | 0644};
    EcfsAttr attr;
    ecfs_catalog_make (ecfs_archive_catalog (fixture->archive), ECFS_ROOT_INO, name, &inode, &attr, NULL, &error);
    g_assert_no_error (error);
    return attr.ino;
}

uint8_t *random_bytes (size_t size)
{
    uint8_t *bytes = g_malloc (size);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t) g_test_rand_int ();
    return bytes;
}

void assert_content (Fixture *fixture, uint64_t ino, const uint8_t *bytes, size_t size)
{
    g_autoptr (GError) error = NULL;
    EcfsContent *content = ecfs_content_open (fixture->archive, ino, &error);
    g_assert_no_error (error);
    g_assert_cmpuint (ecfs_content_size (content), ==, size);
    g_autofree uint8_t *got = g_malloc (size + 1);
    size_t at = 0, n_got;
    while (at < size) {
        ecfs_content_read_wait (content, at, 300000, got + at, &n_got, &error);
        g_assert_no_error (error);
        g_assert_cmpuint (n_got, >, 0);
        at += n_got;
    }
    g_assert_true (memcmp (got, bytes, size) == 0);
    ecfs_content_unref (content);
}

void hide_endpoint (const Fixture *fixture, unsigned i, bool hide)
{
    g_autofree char *path = endpoint_path (fixture, i);
    g_autofree char *away = g_strconcat (path, ".away", NULL);
    g_assert_cmpint (rename (hide ? path : away, hide ? away : path), ==, 0);
}

unsigned count_files (const char *path)
{
    unsigned n_files = 0;
    g_autoptr (GDir) dir = g_dir_open (path, 0, NULL);
    const char *name;
    while (dir != NULL && (name = g_dir_read_name (dir)) != NULL) {
        g_autofree char *child = g_build_filename (path, name, NULL);
        n_files += g_file_test (child, G_FILE_TEST_IS_DIR) ? count_files (child) : 1;
    }
    return n_files;
}
