/*
 * The sender brings the journal to the endpoints: every change within a minute, and at once when somebody waits for it.
 * Each active endpoint gets every segment; one that was down gets what it missed. Now and then it stores a snapshot.
 *
 * Life cycle: start () after the endpoints → stop () before them. Thread-safe but for stop.
 */
#ifndef ECFS_JOURNAL_SENDER_H
#define ECFS_JOURNAL_SENDER_H

#include "archive/lineage.h"

typedef struct EcfsJournalSender EcfsJournalSender;

/** @lineage is borrowed until stop. */
EcfsJournalSender *ecfs_journal_sender_start (EcfsArchive *archive, EcfsLineage *lineage);
/** Stores what is not stored yet, for some seconds at most, and ends. NULL is accepted. */
void ecfs_journal_sender_stop (EcfsJournalSender *self);

/**
 * Stores the journal up to now on as many endpoints as may vanish and one more. @goes_on is asked now and then whether
 * to wait on: ECANCELED. Otherwise fails when endpoints that are up are too few, with the reasons.
 */
bool ecfs_journal_sender_store (EcfsJournalSender *self, bool (*goes_on) (void *user), void *user, GError **error);

/** Has the journal stored without waiting for the minute to be over. */
void ecfs_journal_sender_hurry (EcfsJournalSender *self);

/** Whether the journal up to @sequence is on as many endpoints as may vanish and one more. */
bool ecfs_journal_sender_has_stored (EcfsJournalSender *self, uint64_t sequence);

#endif
