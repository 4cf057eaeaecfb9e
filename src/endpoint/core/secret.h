/* Secrets in files: passwords and tokens. */
#ifndef ECFS_ENDPOINT_CORE_SECRET_H
#define ECFS_ENDPOINT_CORE_SECRET_H

#include "util/error.h"

/** Whether nobody else may read the file @path, which the option @key names; EACCES with what to do. */
bool ecfs_secret_is_private (const char *key, const char *path, GError **error);

/** The first line of the file @path, which the option @key names and nobody else may read. g_free (); NULL. */
char *ecfs_secret_read (const char *key, const char *path, GError **error);

#endif
