/*
 * What is said to the server and what it says. Each time that somebody waits for an answer is a round trip, and the
 * server may be far away: so statements whose rows nobody wants wait, and travel with the next that somebody waits for;
 * and what is going to be asked is asked with them (ahead). All in a pipeline, within one transaction.
 *
 * An error of a statement that waited is told by the next that is waited for. The transaction has failed then.
 *
 * A transaction may be optimistic: it has its turn, for which others wait, for no round trip. What it asks before it
 * has changed what is asked for is read beside it, and the server says with each row what tells it from others. What it
 * changes waits. When that is to be sent, which mostly is at COMMIT, the turn is taken in the same pipeline, and all
 * that was read is validated before the first change: where it is another now, the pipeline ends there with an error,
 * and whoever began the transaction begins anew (Kung and Robinson, On Optimistic Methods for Concurrency Control,
 * 1981, with one that validates at a time). What was read belongs to no single moment until then.
 */
#ifndef ECFS_CATALOG_PG_EXCHANGE_H
#define ECFS_CATALOG_PG_EXCHANGE_H

#include "catalog/pg_waiting.h"

/* A statement that is prepared under a name, with its values; filled where it is, as they may be its own. */
typedef struct PgSaying {
    const char *name;
    PgParameters with;
} PgSaying;

void ecfs_pg_exchange_init (Pg *self);
void ecfs_pg_exchange_clear (Pg *self);
void ecfs_pg_variant_clear (PgVariant *variant);

/** Sends what waits; returns when it is done. An optimistic transaction has its turn from then on. */
bool ecfs_pg_flush (Pg *self, GError **error);
/** Asks what is to be asked ahead. */
bool ecfs_pg_fetch_ahead (Pg *self, GError **error);
/** The same, and a statement behind it; its rows. NULL with @error. */
PGresult *ecfs_pg_execute (Pg *self, StatementId id, const PgParameters *with, GError **error);
/** BEGIN and @sayings, in one trip with what was asked ahead. *@ret_changes: rows that the last of them changed. */
bool ecfs_pg_begin_with (Pg *self, const PgSaying *sayings, size_t n_sayings, uint64_t *ret_changes, GError **error);
/** Sends what waits and COMMIT. Where @flush is given, others get their turn before the disk has it, which is so when
 * that has changed something. *@ret_unsettled: nobody can tell whether it took effect. */
bool ecfs_pg_commit_with (Pg *self, const PgSaying *flush, bool *ret_unsettled, GError **error);
bool ecfs_pg_fail_statement (const Pg *self, const PGresult *result, StatementId id, GError **error)
    __attribute__ ((warn_unused_result));
/** The result of the next command in a pipeline, without the NULL behind it. */
PGresult *ecfs_pg_next_result (Pg *self);
bool ecfs_pg_is_good (const PGresult *result);

#endif
