/*
 * One log, and its copies on their way to their endpoints (log_send.c); which logs there are, and what goes into them,
 * is in logs.c.
 */
#ifndef ECFS_COMMIT_LOG_PRIV_H
#define ECFS_COMMIT_LOG_PRIV_H

#include "archive/common.h"
#include "commit/commit_priv.h"
#include "commit/logs.h"
#include "object/log.h"
#include "util/ticker.h"

#include <stdatomic.h>

/* A copy of a log on its way to its endpoint. */
typedef struct LogCopy {
    EcfsLog *log;
    unsigned index;
    size_t position; /* of the endpoint */
    uint64_t instance;
    /* Guarded by the log's lock. */
    EcfsStream *stream; /* set once */
    GQueue chunks;      /* of GByteArray: header and blocks, until they are durable or given back */
    GList *unsent;      /* in chunks */
    uint64_t durable;   /* bytes of the stripe */
    bool is_cut;
    bool is_told;  /* the catalog knows where it ends */
    uint64_t good; /* content that it has, once it is cut */
    bool is_done;  /* nothing more is sent */
} LogCopy;

struct EcfsLog {
    atomic_uint references;
    EcfsLogs *logs;
    EcfsObjectRow *row;
    const EcfsCodec *codec;
    EcfsSealKeys *keys;
    EcfsTagger tagger;
    unsigned n;
    LogCopy *copies; /* n */
    int64_t begun_us;
    EcfsMutex sending; /* held from a record's place to its last copy: they are sent in order; outer to the next */
    EcfsMutex lock;
    EcfsCond moved;   /* something below has */
    uint64_t end;     /* of the last record */
    uint64_t settled; /* up to where all records are published or given up */
    GArray *given_up; /* of uint64_t pairs, begin and end of records behind that */
    unsigned n_records;
    bool has_ended;
    int content_fd;    /* -1: it is not kept */
    EcfsMutex closing; /* outer to all of the log's */
    int64_t intent;    /* set once, before the first record */
    bool is_closed;    /* in the catalog; guarded by closing */
};

struct EcfsLogs {
    EcfsArchive *archive;
    EcfsMutex lock;                         /* outer to those of logs */
    EcfsMutex packing;                      /* outer to all, as the next */
    EcfsMutex beginning;                    /* held by who begins a log */
    GHashTable *open;                       /* code and rules, as key_of () → EcfsLog, a reference */
    GQueue known;                           /* of EcfsLog, a reference each, oldest first: until they are packed */
    int64_t avoided_us[ECFS_ENDPOINTS_MAX]; /* until when, by position */
    EcfsTicker *ticker;
};

/* What became of a record. */
typedef struct LogSurvey {
    bool stored[ECFS_CODEC_MAX_N];
    bool running[ECFS_CODEC_MAX_N];
    unsigned n_stored;
    unsigned n_running; /* copies that may still come to have it */
} LogSurvey;

/** A log with copies at the endpoints whose positions are @found, one for each stripe of @codec; nobody knows of it,
 * and nothing is sent. */
EcfsLog *ecfs_log_new (EcfsLogs *logs, const EcfsCodec *codec, const size_t *found);
/** Returns @self. */
EcfsLog *ecfs_log_ref (EcfsLog *self);
void ecfs_log_unref (EcfsLog *self); /* NULL is accepted */
/** Begins all copies, with their headers. */
void ecfs_log_start (EcfsLog *self);
/** Sends a record's @bytes, which are enciphered in place, from @from on in the content; in the order of calls, as the
 * caller holds `sending`. */
void ecfs_log_send (EcfsLog *self, GByteArray *bytes, uint64_t from);
/** Until nothing more is to be waited for, of a record that ends at @end: a copy that is late is cut. False: ECANCELED.
 */
bool ecfs_log_await (EcfsLog *self, const EcfsLogOrder *order, uint64_t end, LogSurvey *ret_survey, GError **error);
/** It takes no more; its copies end when they have all that was sent. */
void ecfs_log_end_locked (EcfsLog *self) ECFS_REQUIRES (self->lock);

#endif
