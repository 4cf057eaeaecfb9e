/* The text of ARCHIVE/month: which month it is of, and what each endpoint has used, by its UUID. Pure functions. */
#ifndef ECFS_ARCHIVE_MONTH_TEXT_H
#define ECFS_ARCHIVE_MONTH_TEXT_H

#include "endpoint/tariff.h"

#include <glib.h>

/** What the text has of @month, for g_key_file_unref (): nothing, where it is empty or of another. NULL and EBADMSG: it
 * makes no sense. */
GKeyFile *ecfs_month_file_parse (const char *text, size_t size, const char *month, GError **error);

/** What the endpoint has used; what is absent is 0. EBADMSG. */
bool ecfs_month_file_use (GKeyFile *file, const char *uuid, EcfsMonthUse *ret_use, GError **error);

/** Writes it anew, at most INT64_MAX of each. */
void ecfs_month_file_put (GKeyFile *file, const char *uuid, const EcfsMonthUse *use);

#endif
