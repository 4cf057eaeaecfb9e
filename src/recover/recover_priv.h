/* What the parts of recover share. */
#ifndef ECFS_RECOVER_RECOVER_PRIV_H
#define ECFS_RECOVER_RECOVER_PRIV_H

#include "archive/common.h"
#include "archive/key_count.h"
#include "archive/key_shares.h"
#include "archive/marks.h"
#include "catalog/restore.h"
#include "object/format.h"
#include "recover/recover.h"

#define ECFS_RECOVER_TOLD_MOST    20    /* messages of one kind */
#define ECFS_RECOVER_APPLIED_MOST 10000 /* records that are remembered for who looks */
#define ECFS_RECOVER_STRIPES_MOST 1024  /* of one object that are looked at: none has more in earnest */

typedef struct EcfsRecoverPlace {
    const char *name;
    const char *zone; /* as given, or as the journal tells; lives as long as the recovery */
    bool has_zone;    /* it is given */
    EcfsEndpoint *endpoint;
    EcfsMarker marker;
    int64_t id;              /* catalog row */
    EcfsEndpointState state; /* READONLY or DISTRUSTED as the journal tells, else ACTIVE */
    bool believed;           /* the user said that its word counts alone, … */
    bool distrusted;         /* … or that it counts not at all */
    bool is_named;           /* the user said either of it */
    bool doubtful; /* its marker is not authentic, so it is distrusted; the marker names archive and endpoint alone */
    bool is_unsigned; /* of these: the marker has no key at all, as before the archive had one; that is before */
    EcfsMarker before;
    char *unread;      /* why its marker cannot be read; NULL: it was; owned */
    bool absent;       /* it cannot be asked now, and may be later: of an archive that is followed */
    bool silent;       /* it has neither journal nor snapshots, and may have lost any */
    bool gapped;       /* something is missing before what it has, and it may have lost any of that */
    bool has_false;    /* one of its files of the journal cannot be used, which was told */
    bool is_twin;      /* another place has the same marker */
    uint64_t last;     /* the last change that its files tell of */
    uint32_t epoch;    /* the last that its marker and its files tell of, … */
    uint64_t sequence; /* … and the last change */
    unsigned n_doubts; /* things of its that are not believed */
} EcfsRecoverPlace;

typedef struct EcfsRecoverClaim EcfsRecoverClaim;

/* A stripe that is there. */
typedef struct EcfsRecoverPiece {
    EcfsUuid object;
    uint64_t instance;
    uint64_t size;
    int64_t mtime_s; /* 0: its endpoint tells none */
    uint16_t index;
    uint16_t position;
} EcfsRecoverPiece;

/* Stripes that are there, by object, then index, then instance: in a file without a name, as there may be more than fit
 * into memory. */
typedef struct EcfsRecoverPieces {
    EcfsRecoverPiece *at;
    size_t len;
    size_t room; /* pieces that the file has room for */
    int fd;
} EcfsRecoverPieces;

typedef struct EcfsRecovering {
    const EcfsRecover *what;
    EcfsRecovered *sums;
    EcfsRecoverPlace *places;
    size_t n_places;
    GPtrArray *silent;          /* names of endpoints that were left out since they cannot be asked now; NULL: none */
    EcfsTransferPool *transfer; /* for content that is read; NULL: none was */
    GHashTable *codecs;      /* identity, the codec's → EcfsCodec of stripes that no journal tells of; NULL: none */
    bool has_believed;       /* one of them is believed whatever the others say */
    bool has_named;          /* the user said of some whether their words count */
    size_t n_by_markers;     /* endpoints that the archive has by most of the markers; 0: they do not say */
    bool has_doubled;        /* an object that no journal mentions was stored with several stripes at one endpoint */
    uint64_t n_lacking;      /* objects that no journal mentions, and stripes of theirs are at none of the endpoints */
    size_t n_known;          /* endpoints that the archive has, also those that are not given, … */
    size_t n_copies;         /* … and how many have what `ecfs wait` waited for */
    atomic_uint n_sealed;    /* stripes that are sealed under a key that is not given, … */
    atomic_uint n_told;      /* … and those that told of their objects */
    bool has_vanished;       /* a file of the journal was listed, and not there when it was read */
    bool has_sealed;         /* a copy of a journal file is sealed under a key that is not given */
    bool has_doubted;        /* a snapshot is there that is not believed */
    char *unsettled;         /* names of those that tell of later changes, which nobody can rule out; NULL: none do */
    EcfsRecoverClaim *claim; /* to the archive; NULL: none yet, or nothing is to change */
    bool has_warned;         /* that it stands on few endpoints */
    bool has_stored;         /* something of the new epoch may be on endpoints */
    uint32_t new_epoch;      /* 0: not chosen yet */
    GHashTable *seen;        /* names of journal files that the catalog is made of, or that do not count */
    GPtrArray *pending;      /* what the user is told when it is certain; NULL: at once */
    char *directory;         /* where the catalog is made */
    EcfsUuid archive;
    bool takes_unsigned;       /* most markers have no MAC: they are from before they were authentic */
    EcfsKeyRing *keys;         /* NULL: the archive has no key, or none is known; owned, as the next two */
    EcfsKeyRing *pending_keys; /* that the archive was about to get; NULL: none */
    bool may_be_open;          /* it may have been about to get keys: where nothing that is sealed is believed */
    EcfsKeyShares *shares;     /* that endpoints have of it; NULL: none are known */
    GArray *zone_shares;       /* of EcfsZoneShare: who has which; NULL: likewise */
    GArray *former;            /* of EcfsUuid: generations of key files that are superfluous */
    uint32_t epoch;            /* the highest that enough endpoints tell of, … */
    uint32_t used_epoch;       /* … and that has given names to anything */
    bool is_past;              /* the moment is reached that is asked for: what comes is later */
    bool is_gapped;            /* … as records are missing that may be of then */
    uint64_t then;             /* the last change up to it that was applied, … */
    int64_t then_ns;           /* … and its time; 0: nothing was */
    int64_t earliest_ns;       /* of what is later; 0: nothing is */
    uint64_t n_exchanged;      /* stripes that others took the places of */
    uint64_t n_open;           /* stripes from before there was a key that no catalog lists */
    uint64_t n_given_up;       /* objects of a copy of the archive directory that was given up */
    uint64_t sequence;         /* the highest sequence that enough endpoints tell of */
    uint32_t journal_epoch; /* of the last record of the journal that was read; with sums->sequence, how far it tells */
    EcfsCatalog *catalog;
    char *moved; /* where it was copied to in a database; NULL: it was not */
    EcfsRestore *restore;
    const EcfsRecoverPieces *pieces; /* the stripes that are there, while strays are put */
    GPtrArray *seeds;   /* of EcfsEndpointRow that the catalog begins with; NULL: it is not followed; owned */
    unsigned n_behind;  /* looks at the journal that found later changes, and not the next */
    GPtrArray *applied; /* of EcfsJournalRow: the first that were applied since somebody looked; NULL: nobody does */
} EcfsRecovering;

/* What stripes of an object tell of a file. */
typedef struct EcfsStrayWord {
    const EcfsFileRecord *record; /* borrowed */
    uint16_t position;            /* whose stripe it is from */
    bool believed;                /* so many endpoints say the same of the file as have to */
} EcfsStrayWord;

/* An object that only its stripes tell of; or of one that files share, or of records behind what is known of a log, one
 * file. */
typedef struct EcfsStray {
    EcfsObjectRow *row; /* of those of one object it is the same */
    bool owns_row;
    EcfsCodec *codec; /* one of the recovery's */
    GArray *words;    /* of EcfsStrayWord: of each stripe */
    bool used;        /* by a file */
} EcfsStray;

/* What a stripe tells of its object. */
typedef struct EcfsRecoverTold {
    const EcfsRecoverPiece *piece;
    EcfsRecovering *recovering;
    EcfsStripeHeader header;
    EcfsSealKeys *keys; /* of its object; NULL: it is stored without; owned */
    EcfsStripeFooter footer;
    uint64_t footer_offset;
    bool is_known;      /* it is of a log that the catalog knows, … */
    uint64_t known_end; /* … up to here */
    bool is_unknown;    /* the catalog does not have its object, … */
    bool is_over;       /* … as the journal has seen it come and go: only the header was read */
    bool is_open;       /* it is not sealed, and the archive has a key */
    bool may_be_open;   /* the catalog knows the object, as one that was stored without a key */
    bool good;
} EcfsRecoverTold;

/** Tells the user at once. */
void ecfs_recover_say (const EcfsRecovering *self, const char *text);
/** Tells the user, once it is certain that it counts. */
void ecfs_recover_tell (EcfsRecovering *self, const char *format, ...) G_GNUC_PRINTF (2, 3);
/** The new directory as a shell takes it, for commands in messages; g_free (). */
char *ecfs_recover_directory_word (const EcfsRecovering *self);
bool ecfs_recover_tick (EcfsRecovering *self, const char *phase, uint64_t n_done, uint64_t n_all, GError **error);

/** A file of an endpoint, whole; NULL. */
GByteArray *ecfs_recover_read (EcfsRecoverPlace *place, const char *name, uint64_t size, GError **error);

/** Opens the endpoints, takes the keys and judges whose word counts: what comes before a catalog can be made. */
bool ecfs_recover_begin (EcfsRecovering *self, GError **error);
/** Opens those that are configured, reads their markers, and leaves out what is another archive's. */
bool ecfs_recover_open_places (EcfsRecovering *self, GError **error);
/** Ends all that is asked of them, and frees them with what was read there of keys. */
void ecfs_recover_close_places (EcfsRecovering *self);
/** Opens one more, whose marker is to be read yet. */
bool ecfs_recover_open_place (EcfsRecovering *self, const EcfsConfigEndpoint *config, GError **error);
/** Makes the catalog @path; it is open then, and so are the endpoints. */
bool ecfs_recover_make_catalog (EcfsRecovering *self, const char *path, GError **error);
/** Gives the endpoints in the catalog the names that were given. */
bool ecfs_recover_name_places (EcfsRecovering *self, GError **error);
/** Ends all but the catalog, whatever has begun. */
void ecfs_recover_close (EcfsRecovering *self);

/** Takes a place out, which is left alone. */
void ecfs_recover_drop_place (EcfsRecovering *self, size_t position);
/** The archive that is meant: the one that the user named, that the keys are of, or that most markers name. ENOTUNIQ.
 */
bool ecfs_recover_choose_archive (EcfsRecovering *self, GError **error);
/** Once the keys are known: markers that are not authentic say nothing, and places without any are left out. ENOKEY:
 * most are under keys that are not given. Without a key: a marker that could not be read is an error. */
bool ecfs_recover_judge_markers (EcfsRecovering *self, GError **error);
/** Reads a marker of the place that had @uuid in it. EBADMSG: it is not authentic. */
bool ecfs_recover_examine (const EcfsRecovering *self, EcfsEndpoint *endpoint, const EcfsUuid *uuid,
                           EcfsMarker *ret_marker, GError **error);
/** Once the catalog is known: leaves out places whose doubtful marker names none of the endpoints that the journal
 * tells of; where there is no journal, none. */
bool ecfs_recover_leave_unknown (EcfsRecovering *self, GError **error);
/** Takes the keys that are given, or those that endpoints have shares of; none is no error. */
bool ecfs_recover_gather_keys (EcfsRecovering *self, GError **error);
/** Writes keys and shares into the new directory. */
bool ecfs_recover_keep_keys (EcfsRecovering *self, GError **error);
/** The new catalog gets what it is to know of them. EINVAL: a code of new files that is given may not be used with the
 * shares of the keys. */
bool ecfs_recover_note_keys (EcfsRecovering *self, GError **error);
/** That the keys are the archive's and open what most endpoints have of the journal; ENOKEY with what to do. */
bool ecfs_recover_check_keys (EcfsRecovering *self, GError **error);
/** Whether the archive is under its keys yet: those that it was only about to get become pending_keys, or may be it. */
bool ecfs_recover_weigh_keys (EcfsRecovering *self, GError **error);
/** The archive is open, and keeps its keys for who goes on giving them to it. */
void ecfs_recover_set_keys_aside (EcfsRecovering *self);
/** Likewise when the journal was read: that there is none, and not that nothing of it could be opened. */
bool ecfs_recover_check_opened (EcfsRecovering *self, GError **error);
/** Likewise when the stripes were read that no journal tells of. */
bool ecfs_recover_check_stripes (EcfsRecovering *self, GError **error);

/** Of an endpoint that is given, also where it is left out now. */
const char *ecfs_recover_zone (const EcfsRecovering *self, const EcfsConfigEndpoint *config);
/** When there is a catalog: places without a zone get those that it tells. */
bool ecfs_recover_take_zones (EcfsRecovering *self, GError **error);
void ecfs_recover_set_zones (const EcfsRecovering *self, EcfsConfig *config);
/** Says where endpoints must have been one zone, and nothing tells which. */
void ecfs_recover_tell_zones (EcfsRecovering *self);

/** Makes self->catalog at @path from the newest snapshot and the segments behind it that count with n_known and
 * n_copies. */
bool ecfs_recover_journal (EcfsRecovering *self, const char *path, GError **error);
/** Whether what was made at that time is of the moment that is asked for, or before. */
bool ecfs_recover_is_then (EcfsRecovering *self, int64_t time_ns, uint64_t sequence);
/** Applies records as far as they are of the moment that is asked for, and of later ones where content is since. */
bool ecfs_recover_apply (EcfsRecovering *self, const GPtrArray *rows, GError **error);
/** Applies what is stored behind what the catalog was made of. *ret_lost: that cannot be reached any more, as another
 * epoch began or files of the journal are gone, so that it is to be made anew. Places that do not answer are absent. */
bool ecfs_recover_go_on (EcfsRecovering *self, bool *ret_lost, GError **error);
/** When all are applied. ENOENT: nothing is kept of that moment. */
bool ecfs_recover_reached (EcfsRecovering *self, GError **error);
/** Whether there are segments that were not there when the catalog was made, of what it was made of. */
bool ecfs_recover_journal_grew (EcfsRecovering *self, bool *ret_grew, GError **error);
/** Throws that catalog away. */
void ecfs_recover_forget (EcfsRecovering *self, const char *path);
/** How many endpoints have to say the same, beside those that cannot be asked. */
size_t ecfs_recover_least_words (const EcfsRecovering *self);
/** Whether what the place has of the journal is read: with a key also where its marker is not authentic. */
bool ecfs_recover_reads (const EcfsRecovering *self, const EcfsRecoverPlace *place);
/** The highest epoch that markers say has begun, as far as they are believed. */
uint32_t ecfs_recover_told_epoch (const EcfsRecovering *self);
/** The least of what so many endpoints say as have to; UINT64_MAX: too few do. @said, by place: UINT64_MAX for what is
 * not said; it is sorted. */
uint64_t ecfs_recover_least_said (const EcfsRecovering *self, uint64_t *said);

/* How often a claim is renewed, how long one stands that does not move, and how often others' are looked at; for tests
 * to change. */
extern _Atomic int64_t ecfs_recover_renew_us, ecfs_recover_patience_us, ecfs_recover_look_us;

/** Before anything is written: what the markers say of how large the archive is. */
void ecfs_recover_hear_markers (EcfsRecovering *self);
/** Writes a claim to the archive into all markers and keeps it alive. EBUSY: another recovery is under way. */
bool ecfs_recover_claim_begin (EcfsRecovering *self, GError **error);
/** Reads the markers: ENOTRECOVERABLE, or ENOTCONN where it is on none, where the claim is not on so many endpoints
 * that no mount can say "stored" without it. */
bool ecfs_recover_claim_stands (EcfsRecovering *self, GError **error);
/** Writes the new epoch and session into the markers, in place of the claim. */
bool ecfs_recover_claim_finish (EcfsRecovering *self, uint64_t session_number, GError **error);
/** Before an endpoint goes, which is none of the archive's. */
void ecfs_recover_claim_forget (EcfsRecovering *self, const EcfsEndpoint *endpoint);
/** Makes the markers what they were. */
void ecfs_recover_claim_give_up (EcfsRecovering *self);
/** The session that the new catalog begins with. */
EcfsUuid ecfs_recover_claim_session (const EcfsRecovering *self);
void ecfs_recover_claim_free (EcfsRecovering *self);

/** All stripes that are there. *ret_all is set in any case, and is to be cleared. */
bool ecfs_recover_pieces (EcfsRecovering *self, EcfsRecoverPieces *ret_all, GError **error);
void ecfs_recover_pieces_clear (EcfsRecoverPieces *self);
/** The first of an object, or where it would be. */
size_t ecfs_recover_find_pieces (const EcfsRecoverPieces *all, const EcfsUuid *object);
/** Behind the last of the object that the piece at @at is of. */
size_t ecfs_recover_end_of_object (const EcfsRecoverPieces *all, size_t at);
/** How many stripes are read at once. */
unsigned ecfs_recover_n_readers (const EcfsRecovering *self);
/** Reads header and footer of the EcfsRecoverTold @data; a job for workers. */
void ecfs_recover_told_read (void *data);
void ecfs_recover_told_clear (gpointer data);
/** Whether an object that the catalog does not have may be a file's: not when the journal has seen it come and go, nor
 * when a copy of the archive directory wrote it that had been given up by then. Thread-safe. */
bool ecfs_recover_may_be_content (EcfsRecovering *self, const EcfsStripeHeader *header, bool *ret_may, GError **error);
/** Whether it is good, and its packets, which are read, have this digest. */
bool ecfs_recover_told_fits (const EcfsRecoverTold *self, const uint8_t *digest);

/** Reads the records of a log as what its footer would tell, were there one: part of ecfs_recover_told_read (). */
bool ecfs_recover_read_log (EcfsRecoverTold *self, GError **error);
/** The row of a log gets as much content as one of its copies has, and the others end where they do. */
void ecfs_recover_set_log_ends (EcfsRecovering *self, EcfsObjectRow *row, const EcfsRecoverTold *const *copies,
                                size_t n_copies);
/** Reads bytes of a stripe, into *ret_bytes; g_free (). */
bool ecfs_recover_read_range (const EcfsRecoverTold *self, uint64_t offset, size_t size, uint8_t **ret_bytes,
                              GError **error);

/** Puts stripes that are what was stored in the places of those that are gone or damaged, in the catalog and in
 * @objects (of EcfsObjectRow); reads only where there are several of one. */
bool ecfs_recover_instances (EcfsRecovering *self, const EcfsRecoverPieces *all, const GPtrArray *objects,
                             GError **error);

/** Of the past only what is there is of use: takes the other stripes out of the catalog. */
bool ecfs_recover_forget_gone (EcfsRecovering *self, const EcfsRecoverPieces *all, const EcfsObjectRow *object,
                               GError **error);

/** After the new epoch began: looks for the stripes of all objects, and for objects that the catalog does not have. */
bool ecfs_recover_objects (EcfsRecovering *self, GError **error);

/** The catalog's row of an object; ENOENT. */
EcfsObjectRow *ecfs_recover_object (EcfsRecovering *self, const EcfsUuid *object, GError **error);
/** Whether enough stripes of such an object are there. */
bool ecfs_recover_is_whole (EcfsRecovering *self, const EcfsRecoverPieces *all, const EcfsObjectRow *object);

/** Judges what the stripes of a stray tell of files. */
bool ecfs_recover_judge_words (EcfsRecovering *self, EcfsStray *stray, GError **error);
/** Of the words on the content that the word @at is about, the one that counts most; NULL: @at is not their first. */
const EcfsStrayWord *ecfs_recover_best_word (const EcfsStray *stray, guint at);
/** Reads the content of a stray, around endpoints that return other bytes than were stored: their stripes go out of its
 * row, which gets a SHA-256. EBADMSG: it is not what the stripes say, whoever is left out. */
bool ecfs_recover_check_content (EcfsRecovering *self, const char *path, EcfsStray *stray, GError **error);
/** The names of the endpoints that tell of the file as the record does, "a, b"; g_free (). */
char *ecfs_recover_tellers (const EcfsRecovering *self, const EcfsStray *stray, const EcfsFileRecord *record);
/** Makes files of strays (of EcfsStray): under their names where all of their content is there, else apart. */
bool ecfs_recover_strays (EcfsRecovering *self, GPtrArray *strays, GError **error);

#endif
