/*
 * Making an archive directory anew from what endpoints have: the newest snapshot that can be read, the segments of the
 * journal behind it, and for objects that no journal mentions, the footers of their stripes.
 *
 * Endpoints may lie: what they say counts when as many say the same as `ecfs wait` stores it on, where each endpoint
 * that is not there counts as one that may have said it. See journal.c.
 *
 * The new catalog begins a new epoch: it is stored as a snapshot, and the endpoints' markers are written again, so that
 * every older copy of the archive directory is recognised as one from then on.
 */
#ifndef ECFS_RECOVER_RECOVER_H
#define ECFS_RECOVER_RECOVER_H

#include "archive/archive.h"
#include "archive/key_open.h"
#include "catalog/journal_file.h"

/* Who wants to see all that is kept of an archive's past, in order. */
typedef struct EcfsRecoverWatch {
    void (*begin) (void *user); /* what was told before counts no more */
    /* The catalog is as it was at that time, and from there on until this is called again. */
    bool (*applied) (void *user, EcfsCatalog *catalog, int64_t time_ns, GError **error);
    /* The catalog is as it was before this record of @epoch; applied () follows. May be NULL: it is not of interest. */
    bool (*record) (void *user, EcfsCatalog *catalog, uint32_t epoch, const EcfsJournalRow *row, GError **error);
    /* Records are missing behind the catalog, which is thrown away: @snapshot, the last part of one, takes its place,
     * and applied () follows if it can be read. May be NULL: likewise. */
    bool (*leaving) (void *user, EcfsCatalog *catalog, const EcfsJournalFile *snapshot, GError **error);
    void *user;
} EcfsRecoverWatch;

typedef struct EcfsRecover {
    const char *directory;    /* new or empty */
    const char *shown;        /* what messages call it; NULL: the same */
    const EcfsConfig *config; /* its endpoints; and settings, … */
    const char *const *given; /* … of which these keys count, NULL-terminated; the others come from the journal */
    const EcfsUuid *archive;  /* NULL: the one that all endpoints name */
    const EcfsKeyRing *keys;  /* which the new directory gets; NULL: endpoints share them, or the archive has none */
    const EcfsKeyGiven *given_keys; /* what opens them where endpoints' shares do not; may be NULL */
    /* Names of endpoints whose word counts alone, or not at all; NULL-terminated, or NULL. */
    const char *const *believe;
    const char *const *distrust;
    int64_t at_ns;                 /* the archive as it was then, since 1970; 0: as it is */
    uint64_t at_sequence;          /* with at_ns: as this record and those before it tell, whatever their times; 0 */
    const EcfsRecoverWatch *watch; /* to see the past, with read_only; NULL: nobody does */
    bool names_only;               /* with read_only: without a look at stripes, so of the journal alone */
    bool without_silent;           /* endpoints that cannot be asked now are left out; else that is an error */
    bool dry_run;                  /* only finds out what would be: nothing stays anywhere */
    bool read_only;                /* changes nothing on any endpoint, and the directory can be read only */
    bool force; /* also with so few endpoints, or so soon after another machine, that it is refused otherwise */
    /* Whether to go on although @text; NULL: no. */
    bool (*ask) (void *user, const char *text);
    /* One sentence that the user should know; NULL: it is for those who debug. */
    void (*tell) (void *user, const char *text);
    /* Now and then; false: ECANCELED. May be NULL. */
    bool (*tick) (void *user, const char *phase, uint64_t n_done, uint64_t n_all);
    void *user;
} EcfsRecover;

typedef struct EcfsRecovered {
    EcfsUuid archive;
    uint32_t epoch;
    uint64_t sequence;      /* the last record of the journal that was found; 0: none */
    int64_t time_ns;        /* of that */
    bool is_older;          /* than the moment that was asked for: what happened then is missing */
    bool has_snapshot;      /* one was read */
    uint64_t n_records;     /* that were read behind it */
    uint64_t n_files;       /* that there are now */
    uint64_t n_unfinished;  /* files that were being written and never had content; left out */
    uint64_t n_refused;     /* records that made no sense */
    uint64_t n_hinted;      /* files whose names are from footers, where they stood; … */
    uint64_t n_set_apart;   /* … and below /recovered, where another has the name */
    uint64_t n_partial;     /* files of which a part of the content is there; these are below /recovered as .partial */
    uint64_t n_lost;        /* files of which too few stripes are there */
    uint64_t n_lost_strays; /* objects that no file is known of, of which too few stripes are there */
    uint64_t n_foreign;     /* stripes of other archives, or that are damaged; left alone */
    size_t n_known;         /* endpoints of the archive, … */
    size_t n_given;         /* … and those that are given */
    char writer[ECFS_MARKER_HOST_SIZE]; /* the machine that wrote last, by the newest marker; empty: not told */
    EcfsUuid key;                       /* that authenticates all of it; nil: the archive has none */
    GPtrArray *doubted;                 /* names of those of which something is not believed; NULL: there are none */
} EcfsRecovered;

/**
 * ENOTRECOVERABLE with what to do where it is refused without `force`; ENOKEY where the archive has a key, and it is
 * not among those that are given. Nothing has changed on any endpoint then. *ret_recovered is set in any case, and is
 * to be cleared.
 */
bool ecfs_archive_recover (const EcfsRecover *what, EcfsRecovered *ret_recovered, GError **error);
void ecfs_recovered_clear (EcfsRecovered *recovered);

#endif
