#include "catalog/move.h"

#include "catalog/database.h"
#include "util/io.h"
#include "util/lock.h"

#include <fcntl.h>
#include <unistd.h>

#define BEAT_US (5 * G_USEC_PER_SEC)

void (*ecfs_catalog_move_step) (const char *step);

void ecfs_catalog_moving (const char *step)
{
    if (ecfs_catalog_move_step != NULL)
        ecfs_catalog_move_step (step);
}

char *ecfs_catalog_move_name (const EcfsCatalogMove *self)
{
    return g_strconcat (self->file, ".arriving", NULL);
}

/* What the copying tells. */
typedef struct Telling {
    const EcfsCatalogMove *move;
    const char *phase;
    uint64_t n_all;
    EcfsDb *db; /* that signs of life are given for; NULL: none */
    int64_t beat_at_us;
    GError *error; /* of a sign of life */
} Telling;

static bool tell (void *user, uint64_t n_rows)
{
    Telling *self = user;
    const EcfsCatalogMove *move = self->move;
    ecfs_catalog_moving (self->phase);
    if (self->db != NULL && ecfs_now_us () >= self->beat_at_us) {
        self->beat_at_us = ecfs_now_us () + BEAT_US;
        if (!self->db->ops->beat (self->db, &self->error))
            return false;
    }
    return move->tick == NULL || move->tick (move->user, self->phase, n_rows, MAX (self->n_all, n_rows));
}

/* The first reason is the one to tell. */
static bool end_telling (Telling *self, bool good, GError **error)
{
    if (!good && self->error != NULL) {
        g_clear_error (error);
        g_propagate_error (error, g_steal_pointer (&self->error));
    }
    g_clear_error (&self->error);
    return good;
}

static void keep_first (void *user, uint64_t ino, const char *text)
{
    char **first = user;
    if (*first == NULL && ino != 0)
        *first = g_strdup_printf ("inode %" G_GUINT64_FORMAT ": %s", ino, text);
    else if (*first == NULL)
        *first = g_strdup (text);
}

/* What cannot be in a whole catalog. */
static bool check (const char *place, GError **error)
{
    bool sound;
    g_autofree char *first = NULL;
    EcfsCatalog *catalog = ecfs_catalog_open (place, ECFS_CATALOG_READONLY | ECFS_CATALOG_ARRIVING, error);
    bool good = catalog != NULL && ecfs_catalog_check (catalog, keep_first, &first, &sound, error);
    (void) ecfs_catalog_close (catalog, NULL); /* it was only read; NULL is accepted */
    return good && (first == NULL ||
                    ecfs_fail (error, EBADMSG,
                               "the catalog is damaged, and stays where it is: %s; 'ecfs fsck' tells more", first));
}

static bool compare (const EcfsCatalogMove *self, const char *file, uint64_t *ret_n_rows, GError **error)
{
    Telling telling = {.move = self, .phase = "comparing rows"};
    const EcfsPgCopying how = {.tick = tell, .user = &telling};
    return ecfs_pg_count_file (file, &telling.n_all, error) &&
           end_telling (&telling, ecfs_pg_compare (self->location, file, &how, ret_n_rows, error), error);
}

/* Tables are brought up to date, and all is in the file itself. */
static bool close_file (const char *path, GError **error)
{
    EcfsCatalog *catalog = ecfs_catalog_open (path, 0, error);
    return catalog != NULL && ecfs_catalog_close (catalog, error);
}

bool ecfs_catalog_move_in (const EcfsCatalogMove *self, uint64_t *ret_n_rows, GError **error)
{
    Telling telling = {.move = self, .phase = "copying rows"};
    const EcfsPgCopying how = {.arriving = true, .tick = tell, .user = &telling};
    if (!close_file (self->file, error) || !check (self->file, error) ||
        !ecfs_pg_count_file (self->file, &telling.n_all, error) ||
        !end_telling (&telling, ecfs_pg_copy_from_file (self->location, self->file, &how, error), error))
        return false;
    ecfs_catalog_moving ("copied");
    return compare (self, self->file, ret_n_rows, error) && check (self->location, error);
}

/* Its content, and that it has a name. */
static bool make_durable (const char *path, GError **error)
{
    g_autofree char *directory = g_path_get_dirname (path);
    ecfs_autofd fd = open (path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fsync (fd) != 0)
        return ecfs_fail_errno (error, errno, "%s", path);
    int result = ecfs_fsync_dir (AT_FDCWD, directory);
    return result == 0 || ecfs_fail_errno (error, -result, "%s", directory);
}

/* @db has it open for writing: nobody else does. */
static bool leave (const EcfsCatalogMove *self, EcfsDb *db, const char *file, uint64_t *ret_n_rows, GError **error)
{
    Telling telling = {.move = self, .phase = "copying rows", .db = db};
    const EcfsPgCopying how = {.tick = tell, .user = &telling};
    (void) unlink (file); /* of a move that was interrupted; else copying fails */
    if (!ecfs_pg_check_own (db, error) || !end_telling (&telling, ecfs_pg_copy_to_file (db, file, &how, error), error))
        return false;
    ecfs_catalog_moving ("copied");
    if (!compare (self, file, ret_n_rows, error) || !check (file, error) || !make_durable (file, error))
        return false;
    ecfs_catalog_moving ("leaving the database");
    return ecfs_pg_left (db, self->where, error);
}

bool ecfs_catalog_move_out (const EcfsCatalogMove *self, uint64_t *ret_n_rows, GError **error)
{
    g_autofree char *file = ecfs_catalog_move_name (self);
    EcfsDb *db = ecfs_pg_open (self->location, 0, error);
    bool left = db != NULL && leave (self, db, file, ret_n_rows, error);
    if (db != NULL)
        db->ops->close (db);
    return left;
}

bool ecfs_catalog_move_is_whole (const EcfsCatalogMove *self, uint64_t *ret_n_rows, GError **error)
{
    g_autofree char *file = ecfs_catalog_move_name (self);
    return compare (self, file, ret_n_rows, error) && check (file, error);
}
