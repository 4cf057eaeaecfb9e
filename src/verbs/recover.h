/* ecfs_recover () in its parts, for a program that reports more of it. */
#ifndef ECFS_VERBS_RECOVER_H
#define ECFS_VERBS_RECOVER_H

#include "ecfs/ecfs.h"
#include "recover/recover.h"

#include <json-glib/json-glib.h>

/** What words make of endpoints and settings; @given, whose elements are g_free ()d, gets the keys that were set and a
 * NULL. EINVAL. */
EcfsConfig *ecfs_recovery_config (const EcfsRecovery *what, GPtrArray *given, GError **error);

/** The report of ecfs_recover (). */
JsonObject *ecfs_recovered_facts (const EcfsRecovered *recovered);

#endif
