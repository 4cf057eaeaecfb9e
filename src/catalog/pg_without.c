/* What an ecfs that was built without libpq says to a catalog in PostgreSQL. */
#include "catalog/pg.h"

_Atomic int64_t ecfs_pg_dead_us = 60 * G_USEC_PER_SEC;

static bool fail (GError **error)
{
    return ecfs_fail (error, ENOTSUP,
                      "this ecfs was built without PostgreSQL: use one that was built with libpq (meson setup "
                      "-Dpostgresql=enabled), or a catalog in a file");
}

char *ecfs_pg_version (void)
{
    return NULL;
}

bool ecfs_pg_is_location (const char *path)
{
    return g_str_has_prefix (path, "postgresql://") || g_str_has_prefix (path, "postgres://") ||
           g_str_has_prefix (path, "service=");
}

/* An ecfs that has libpq may have made it. */
bool ecfs_pg_check_location (const char *text, GError **error)
{
    return true;
}

char *ecfs_pg_display (const char *location)
{
    return g_strdup ("in PostgreSQL");
}

char *ecfs_pg_schema (const EcfsUuid *archive)
{
    return g_strdup ("ecfs");
}

EcfsDb *ecfs_pg_open (const char *location, unsigned flags, GError **error)
{
    told (fail (error));
    return NULL;
}

bool ecfs_pg_create (const char *location,
                     bool (*fill) (EcfsDb *db, const char *path, const EcfsUuid *archive, GError **error),
                     const EcfsUuid *archive, GError **error)
{
    return fail (error);
}

bool ecfs_pg_copy_to_file (EcfsDb *db, const char *path, const EcfsPgCopying *how, GError **error)
{
    return fail (error);
}

bool ecfs_pg_copy_from_file (const char *location, const char *path, const EcfsPgCopying *how, GError **error)
{
    return fail (error);
}

bool ecfs_pg_compare (const char *location, const char *path, const EcfsPgCopying *how, uint64_t *ret_n_rows,
                      GError **error)
{
    return fail (error);
}

bool ecfs_pg_count_file (const char *path, uint64_t *ret_n_rows, GError **error)
{
    return fail (error);
}

bool ecfs_pg_state (const char *location, EcfsPgState *ret_state, char **ret_where, GError **error)
{
    return fail (error);
}

bool ecfs_pg_arrived (const char *location, GError **error)
{
    return fail (error);
}

bool ecfs_pg_left (EcfsDb *db, const char *where, GError **error)
{
    return fail (error);
}

bool ecfs_pg_check_own (EcfsDb *db, GError **error)
{
    return fail (error);
}

bool ecfs_pg_drop (const char *location, bool all, GError **error)
{
    return fail (error);
}
