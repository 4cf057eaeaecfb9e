/*
 * The logs that an archive has open (object/log.h): small files are stored as records in one of them, each with a write
 * that endpoints answer once it is on their disks, where the others take four requests and a file for each.
 *
 * A log is copies:n at n endpoints, one for each number of copies. It ends when it is full or old, and with the first
 * copy that fails or is late; then the next begins elsewhere. It is never appended to again, and what it has goes into
 * packs (upkeep/packer.h).
 *
 * Of a shared catalog each member has logs of its own. While one is open an intent in the catalog says so: who leads
 * packs those that have ended, and those of members that are gone.
 *
 *   state of a copy   meaning                                             moved on by
 *   running           records are sent, and acknowledged in their order   error, lateness → cut; end of the log → ended
 *   cut               has what was acknowledged until then                -
 *   ended             has all                                             -
 *
 * Thread-safe. The lock of a log is inner to all but those of endpoints; no catalog call is made under it.
 */
#ifndef ECFS_COMMIT_LOGS_H
#define ECFS_COMMIT_LOGS_H

#include "archive/archive.h"
#include "codec/codec.h"
#include "object/log.h"
#include "util/lock.h"

typedef struct EcfsLogs EcfsLogs;
typedef struct EcfsLog EcfsLog;

/** Old ones end from then on (pack_after), and the catalog is told. */
EcfsLogs *ecfs_logs_start (EcfsArchive *archive);
/** Ends all logs, and tells the catalog. Nobody may be about to append. */
void ecfs_logs_stop (EcfsLogs *self);
/** After stop (), once endpoints have given back what they had of them. NULL is accepted. */
void ecfs_logs_free (EcfsLogs *self);

/* What is to become a record. */
typedef struct EcfsLogOrder {
    const EcfsCodec *codec; /* copies */
    const char *marks;      /* of EcfsRuled; NULL: no rule holds for it */
    EcfsLogRecord record;   /* but for the epoch */
    uint8_t sha256[ECFS_SHA256_SIZE];
    /* Whether these copies, at endpoints by position, suffice. */
    bool (*suffices) (void *user, const bool *stored, const size_t *position);
    bool (*cancelled) (void *user);
    void *user;
} EcfsLogOrder;

/* A record that is stored; ecfs_logs_publish () or ecfs_logs_give_up () has to follow, and soon: the records behind it
 * wait for that. */
typedef struct EcfsLogPlace {
    EcfsLog *log; /* a reference */
    uint64_t from;
    EcfsLogged logged;
    bool full; /* all copies have it; else enough of them */
} EcfsLogPlace;

/**
 * Stores a record and waits until enough copies are durable, or all but late ones. False with ENOTSUP: no log can be
 * had, or none that takes it, and it is to be stored otherwise; ECANCELED; what the catalog says. Blocks.
 */
bool ecfs_logs_append (EcfsLogs *self, const EcfsLogOrder *order, EcfsLogPlace *ret_place, GError **error);
/** Returns when all records before it are published or given up. */
void ecfs_logs_await_turn (const EcfsLogPlace *place);
/** ecfs_catalog_publish () of a record whose turn it is. Ends the place. EAGAIN: who leads has closed the log,
 * and it is to be stored otherwise. @error may not be NULL. */
bool ecfs_logs_publish (EcfsLogPlace *place, EcfsPublish *publish, bool *ret_kept, GError **error);
/** Nobody wants it. Ends the place. */
void ecfs_logs_give_up (EcfsLogPlace *place);

/** Held by who packs: what two would pack at once is packed twice. */
EcfsMutex *ecfs_logs_packing_lock (EcfsLogs *self);
/** Nothing more comes into the log: returns when all of its records are settled, and the catalog knows. Nothing happens
 * with those of other members. */
void ecfs_logs_end (EcfsLogs *self, const EcfsUuid *log);
/** A descriptor of the content of a log that is still known here, for close(2); -1. */
int ecfs_logs_content (EcfsLogs *self, const EcfsUuid *log);
/** The log is packed. */
void ecfs_logs_forget (EcfsLogs *self, const EcfsUuid *log);

#endif
