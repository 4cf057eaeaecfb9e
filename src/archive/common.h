/*
 * What the rooms that work on an open archive share: its codecs, layouts, pins, readers, places and figures. For
 * commit, journal, staging, check, upkeep, verbs and fsck; who only uses an archive needs archive.h.
 */
#ifndef ECFS_ARCHIVE_COMMON_H
#define ECFS_ARCHIVE_COMMON_H

#include "archive/archive.h"
#include "archive/key_shares.h"
#include "codec/codec.h"
#include "object/layout.h"
#include "object/reader.h"
#include "object/transfer.h"
#include "util/lock.h"

#include <stdatomic.h>
#include <sys/stat.h>

/* At content that is replaced between two looks at the catalog: extents first, then their objects. */
#define ECFS_CONTENT_ATTEMPTS 20

#define ECFS_ENDPOINTS_MAX 1024

#define ECFS_N_STREAMS 8 /* files that are stored while they are written, at once */

typedef struct EcfsLineage EcfsLineage;
typedef struct EcfsSightings EcfsSightings;
typedef struct EcfsSharedReaders EcfsSharedReaders;

/* What runs on an open archive and belongs to a room above, which starts and ends it. */
typedef enum EcfsService {
    ECFS_SERVICE_STAGING,
    ECFS_SERVICE_KEY,      /* between start and stop; NULL where endpoints have no shares of a key */
    ECFS_SERVICE_JOURNAL,  /* between start and stop; NULL when readonly, and while another leads */
    ECFS_SERVICE_LOGS,     /* between start and stop; NULL when readonly */
    ECFS_SERVICE_TOGETHER, /* likewise */
    ECFS_SERVICE_READS,    /* likewise */
    ECFS_SERVICE_UPKEEP,   /* between start and stop; NULL when readonly and not wanted */
    ECFS_SERVICE_REPAIR,   /* of a mount, between start and stop; NULL otherwise, and while another leads */
    ECFS_SERVICE_PACKING,  /* likewise */
    ECFS_SERVICE_LEADING,  /* of a mount of a shared catalog, between start and stop; NULL otherwise */
    ECFS_SERVICE_PINNING,  /* likewise; NULL without a cache, too */
    ECFS_N_SERVICES,
} EcfsService;

/** NULL: it does not run. */
void *ecfs_archive_service (const EcfsArchive *self, EcfsService service);
/** By the room that it belongs to, while no other thread asks for it. */
void ecfs_archive_set_service (EcfsArchive *self, EcfsService service, void *running);

/**
 * Begins an archive without its services: endpoints, lineage, workers. See ecfs_archive_start () for what fails.
 */
bool ecfs_archive_begin (EcfsArchive *self, GError **error);
/** What is under way fails soon with ECANCELED, nothing new begins. */
void ecfs_archive_set_stopping (EcfsArchive *self);
bool ecfs_archive_is_stopping (const EcfsArchive *self);
/** The same as a flag, valid as long as the archive. */
const atomic_bool *ecfs_archive_stop_flag (const EcfsArchive *self);
/** Ends what makes attempts, once their results are of no more use. */
void ecfs_archive_end_workers (EcfsArchive *self);
/** Has endpoints give up what is under way; does not wait for that. */
void ecfs_archive_begin_stop (EcfsArchive *self);
/** Ends lineage, endpoints and transfers; after the services. */
void ecfs_archive_end (EcfsArchive *self);
/** Frees one that no services run on: never started, or ended. NULL is accepted. */
void ecfs_archive_close (EcfsArchive *self);

/* Threads that store content. */
typedef enum EcfsStoring {
    ECFS_STORES_STAGED,
    ECFS_STORES_STREAMED, /* content that is still being written; none when readonly */
    ECFS_STORES_PUT,      /* content that is not staged; none when readonly */
} EcfsStoring;

EcfsWorkers *ecfs_archive_workers (const EcfsArchive *self, EcfsStoring what);
EcfsTransferPool *ecfs_archive_transfer (const EcfsArchive *self);
EcfsReadLog *ecfs_archive_read_log (const EcfsArchive *self);
/** From start on; NULL when readonly, until it is wanted. */
EcfsLineage *ecfs_archive_lineage (const EcfsArchive *self);
EcfsSightings *ecfs_archive_sightings (const EcfsArchive *self);
/** What is used of endpoints this month (month.h). */
struct EcfsMonthBook *ecfs_archive_month (const EcfsArchive *self);
/** Held by who takes a snapshot: what another takes looks superfluous to who tidies up. */
EcfsMutex *ecfs_archive_snapshot_lock (EcfsArchive *self);

/** Held by who adds, replaces or removes an endpoint; outer to the other locks of the archive. */
EcfsMutex *ecfs_archive_adding_lock (EcfsArchive *self);

/** Whether it is open to be destroyed, and its keys are lost. */
bool ecfs_archive_lacks_keys (const EcfsArchive *self);
/** Whether it is open for reading only. */
bool ecfs_archive_is_readonly (const EcfsArchive *self);
/** Whether what is done once for an archive is for this process to do, and not for another that has it mounted, too
 * (catalog_mounts = many): sending the journal, deleting, repairing, packing. Once true it stays so. */
bool ecfs_archive_leads (const EcfsArchive *self);
/** Of one that does not lead: which endpoints there are, and what they are for, as the others have it. */
bool ecfs_archive_follow_endpoints (EcfsArchive *self, GError **error);
/** Of one that is to lead from now on: asks the endpoints whether who led before has stored what this one does not
 * know; seconds. ESTALE: it has. */
bool ecfs_archive_check_newest (EcfsArchive *self, GError **error);
/** Of one that is the newest: tells the endpoints so. */
bool ecfs_archive_begin_leading (EcfsArchive *self, GError **error);
/** Asks the endpoints whether a catalog that others change, too, lacks what they have been told of; seconds. ESTALE: it
 * does. Of one thread at a time, as the next. */
bool ecfs_archive_check_beside (EcfsArchive *self, GError **error);
/** Has markers read again, of who does not lead: a machine may have recovered the archive and tell nobody here but the
 * endpoints. Never waits; changes are refused from when enough say so. */
void ecfs_archive_ask_beside (EcfsArchive *self);
/** Why it does, if that was found; else NULL. Valid until the archive is closed. */
const char *ecfs_archive_old_copy (const EcfsArchive *self);
/** It leads, and has the services for it. */
void ecfs_archive_note_leads (EcfsArchive *self);
/** Which of the endpoints it is, from 0. */
size_t ecfs_archive_position (const EcfsArchive *self, const EcfsArchiveEndpoint *endpoint);

/** A UUID for a new object. */
EcfsUuid ecfs_archive_object_uuid (EcfsArchive *self);
/** An object got other stripes than it had. */
void ecfs_archive_stripes_changed (EcfsArchive *self);
/** Of an archive that another machine writes: takes from the catalog whom it distrusts, and whom it does no more, so
 * that nothing is read there. */
void ecfs_archive_heed_distrust (EcfsArchive *self);
/** What was read before may be from an endpoint that lies: whoever keeps bytes outside of the archive's cache, as the
 * kernel does, is to read them again. */
void ecfs_archive_doubt (EcfsArchive *self);
/** How often that was so; wraps around. */
unsigned ecfs_archive_doubts (const EcfsArchive *self);
/** An attempt to store new content begins, or ends. */
void ecfs_archive_count_storing (EcfsArchive *self, bool begins);
/** Whether nothing was read or stored for so long. */
bool ecfs_archive_is_quiet (const EcfsArchive *self, int64_t for_us);

/* For tables whose keys are EcfsUuid. */
guint ecfs_uuid_hash (gconstpointer key);
gboolean ecfs_uuid_same (gconstpointer a, gconstpointer b);

#define ECFS_LOCK_NAME         "lock"
#define ECFS_CONFIG_NAME       "ecfs.conf"
#define ECFS_CATALOG_NAME      "catalog.sqlite"
#define ECFS_CATALOG_COPY_NAME "catalog-copy.sqlite" /* of which a snapshot is taken; of a crash, and to be deleted */
#define ECFS_STAGED_ID_NAME    "staging-id"          /* what its staging directory is to say that it is */
#define ECFS_CONTROL_SOCKET    "control.sock"        /* the door to a running mount */
#define ECFS_READER_SOCKET     "reader.sock"         /* to one that only reads and follows */
#define ECFS_DOWN_SINCE_NAME   "down-since"          /* since when endpoints are down */
#define ECFS_GAPS_NAME         "journal-gaps"        /* which endpoints have lost some of the journal (gaps.h) */

/* The key, among the settings that the catalog keeps, of a directory that was recovered for reading only. */
#define ECFS_READ_ONLY_KEY "recovered_for_reading"

/** `ecfs recover --read-only` leaves the archive to who has it: its catalog has no epoch of its own. EROFS. */
bool ecfs_archive_check_writable (EcfsArchive *self, GError **error);

/** How many of the endpoints were not removed since the archive was opened. */
size_t ecfs_archive_n_left (const EcfsArchive *self);
/** Whether so many endpoints can hold a code's stripes. */
bool ecfs_archive_enough_endpoints (const EcfsCodec *codec, size_t n_endpoints, bool allow_double, GError **error);
/**
 * Marks an endpoint and writes its row, which *ret_row then holds but for its name; or ends what was begun and not
 * finished with the endpoint. One of this archive that no row names is taken in as it is, with what it has. EEXIST: it
 * is another archive's, or in use by a newer copy of this one. @keys: NULL where the archive has none. @new: the
 * archive never had content, so an endpoint without marker lost nothing.
 */
bool ecfs_archive_register (EcfsCatalog *catalog, const EcfsKeyRing *keys, const EcfsKeyShares *shares,
                            const EcfsConfigEndpoint *config, bool new, EcfsEndpointRow *ret_row, GError **error);

/** Marks the emptied place of @old as a new endpoint, whose row *ret_row then holds but for its name; see
 * ecfs_catalog_endpoint_supersede (). */
bool ecfs_archive_register_anew (EcfsCatalog *catalog, const EcfsKeyRing *keys, const EcfsKeyShares *shares,
                                 const EcfsConfigEndpoint *config, const EcfsArchiveEndpoint *old,
                                 EcfsEndpointRow *ret_row, char **ret_old_name, GError **error);
/** What the endpoints have of the archive's key; NULL: nothing. Borrowed as long as it is open. Thread-safe. */
const EcfsKeyShares *ecfs_archive_key_shares (const EcfsArchive *self);

/* Where a new revision of the key file is. */
typedef struct EcfsKeyStored {
    GPtrArray *behind; /* endpoints that do not have it, each with the reason; owned */
    bool is_safe;      /* it comes back whatever the code survives the loss of */
} EcfsKeyStored;

/**
 * The next revision of the key file takes the place of the present one; @shares is taken in any case. ret_stored is set
 * where it is in the archive directory, from which on a mount or fsck stores it at endpoints that are behind. EAGAIN:
 * it is not the next; EROFS: another copy of the directory may be newer. Thread-safe; blocks.
 */
bool ecfs_archive_change_key_file_take (EcfsArchive *self, EcfsKeyShares *shares, EcfsKeyStored *ret_stored,
                                        GError **error);

/** Whether it has a configuration: what an init writes last. */
bool ecfs_archive_has_config (const char *directory);

/** Makes a place none of the archive's endpoints, where it has the marker @own (NULL: whichever); ENOENT: it has none.
 */
bool ecfs_archive_remove_marker (const EcfsEndpointSpec *spec, const EcfsMarker *own, GError **error);
/** Takes what is left of the salvage program away from an endpoint, as far as that goes. */
void ecfs_archive_remove_salvage (EcfsEndpoint *endpoint);

/** What an archive directory has beside catalog and configuration. */
bool ecfs_archive_make_directories (const char *directory, GError **error);
/* What a recovery that has not ended leaves in its directory. */
#define ECFS_FOLLOWED_NAME   "followed" /* how far a mount is that follows, as JSON */
#define ECFS_RECOVERING_NAME "recovering"
/** For a recovery: makes an archive directory, or takes one that is empty, or that another has left which was killed;
 * *ret_lock keeps others from doing so meanwhile. */
bool ecfs_archive_begin_directory (const char *directory, int *ret_lock, bool *ret_made, GError **error);
/** It has all that it needs. */
void ecfs_archive_end_directory (const char *directory);
/** Takes out what was begun in it, and it, when it was @made. */
void ecfs_archive_empty_directory (const char *directory, bool made);

/** The same, to change it. */
EcfsArchiveEndpoint *ecfs_archive_endpoint_own (EcfsArchive *self, const EcfsArchiveEndpoint *endpoint);
/** Gives it a state, in the catalog and here; with `adding` held. */
bool ecfs_archive_put_state (EcfsArchive *self, const EcfsArchiveEndpoint *endpoint, EcfsEndpointState state,
                             GError **error);
/** Whether requests to it may succeed; NULL is accepted. */
bool ecfs_archive_reaches (const EcfsArchiveEndpoint *endpoint);

/** Whether what @path is (@status, of lstat ()) may be believed: it is the caller's or root's, and only theirs to
 * write. */
bool ecfs_archive_check_owner (const char *path, const struct stat *status, GError **error);
/** The same of an archive directory and what it begins with; what is absent is well. */
bool ecfs_archive_check_directory (const char *directory, GError **error);

/** Whether a process has the archive open for changes now; one that cannot be told counts as none. */
bool ecfs_archive_is_held (const char *directory);
/** A descriptor that has its lock also when it is closed; -1 and an error. */
int ecfs_archive_keep_lock (const EcfsArchive *self, GError **error);
/** Takes the lock of an archive directory, whatever state it is in; -1 and an error: EBUSY telling who holds it. The
 * caller closes it. */
int ecfs_archive_lock_directory (const char *directory, GError **error);
/** Takes the archive's lock into lock_fd; EBUSY telling who holds it. */
bool ecfs_archive_take_lock (EcfsArchive *self, GError **error);
/** Writes into the lock who holds it, and with @mountpoint, where the archive is mounted. */
void ecfs_archive_sign_lock (EcfsArchive *self, const char *mountpoint);

/** The codec of a code's text or of an object's code, kept until the archive is freed. */
EcfsCodec *ecfs_archive_codec (EcfsArchive *self, const char *code, GError **error);

/** The codec for an object of @bytes bytes of a file with the code @code: small ones are copies with the same
 * tolerance.
 */
const EcfsCodec *ecfs_archive_object_codec (EcfsArchive *self, const char *code, uint64_t bytes, GError **error);

/** The ranges of a file of @size bytes that hold data, as SEEK_DATA tells: GArray of EcfsFileRange without object
 * offsets; all of it where that is not supported. Short holes count as data. */
GArray *ecfs_data_ranges (int fd, uint64_t size);

/** While pinned, an object's stripes are not deleted by this process. */
void ecfs_archive_pin (EcfsArchive *self, const EcfsUuid *object);
void ecfs_archive_unpin (EcfsArchive *self, const EcfsUuid *object);
bool ecfs_archive_pinned (EcfsArchive *self, const EcfsUuid *object);

/** The keys of a catalog row's object; *ret_keys is NULL where it is stored without. ENOKEY. */
bool ecfs_archive_seal_keys (const EcfsArchive *self, const EcfsObjectRow *object, EcfsSealKeys **ret_keys,
                             GError **error);

/** The layout of a catalog row's object, checked. */
bool ecfs_archive_layout (EcfsArchive *self, const EcfsObjectRow *object, EcfsLayout *ret_layout, GError **error);

/**
 * Tries the endpoints that are down once more and waits for their answers for a while, together with whoever does so
 * already; not when that was done within the last second. Blocks for three seconds at most.
 */
void ecfs_archive_revive_endpoints (EcfsArchive *self);

/** A reader of an object, without the stripes flagged in @left_out (n flags, may be NULL). */
EcfsReader *ecfs_archive_reader (EcfsArchive *archive, const EcfsObjectRow *object, const bool *left_out,
                                 GError **error);

/**
 * An object whose content does not have its SHA-256 although all checksums fit: finds the stripes that are not what was
 * stored, logs their endpoints and notes them for repair; flags them in @ret_lies (n flags). @tick as in EcfsLiars, may
 * be NULL. No stripe is flagged where all are as they were stored: then it was the cache, which has forgotten the
 * object. EBADMSG: leaving out as many endpoints as the code can lose does not help. Blocks.
 */
bool ecfs_archive_find_liars (EcfsArchive *archive, const EcfsObjectRow *object,
                              bool (*tick) (void *user, uint64_t bytes), void *user, bool *ret_lies, GError **error);

/** What the cache has of an object may be from an endpoint that lies: it goes, and what is still read through readers
 * that there are is not kept. What is sealed stays: nobody without the key can make it look right. */
void ecfs_archive_forget_cached (EcfsArchive *archive, const EcfsObjectRow *object);

/** What reads an object, for ecfs_reader_params_clear (), also after an error: parameters but for `trouble`, with the
 * @stripes of a row (ECFS_CODEC_MAX_N), which they then name, without those flagged in @left_out (may be NULL). */
bool ecfs_archive_reader_params (EcfsArchive *archive, const EcfsObjectRow *object, const bool *left_out,
                                 EcfsReaderStripe *stripes, EcfsReaderParams *ret_params, GError **error);

/** The objects that lack stripes and are to be filled up from staging: set of rows as int64_t. */
GHashTable *ecfs_archive_coming_objects (EcfsArchive *self, GError **error);
/** Flags those stripes of an object (ECFS_CODEC_MAX_N) that are known to be damaged. */
bool ecfs_archive_known_damage (EcfsArchive *self, int64_t object, bool *ret_damaged, GError **error);

/** Small numbers, equal for endpoints in one zone. */
unsigned ecfs_archive_zone_number (const EcfsArchive *self, size_t position);
/** Stripes of one object, of @n in all, that one of the first @n_endpoints endpoints may hold. */
unsigned ecfs_archive_most_per_endpoint (const EcfsArchive *self, size_t n_endpoints, unsigned n);
/** What each of the first @n_endpoints endpoints has free for itself, as placement wants it. */
void ecfs_archive_rooms (const EcfsArchive *self, size_t n_endpoints, uint64_t *ret_rooms);
/** Whether an endpoint has a capacity of its configuration. */
bool ecfs_archive_has_capacities (const EcfsArchive *self);
/** Counts what endpoints with a capacity have, for the figures of space that they are asked for from then on.
 * ECANCELED: the archive is being stopped. */
bool ecfs_archive_count_used (EcfsArchive *self, GError **error);
/** A number that changes when other endpoints take stripes than before, or have other room. */
uint64_t ecfs_archive_space_state (const EcfsArchive *self);
/** Whether an endpoint that takes stripes has not said yet how much room it has, or that it cannot say. */
bool ecfs_archive_space_is_owed (const EcfsArchive *self);
/** Finds out from what endpoints told how much content fits. */
void ecfs_archive_foretell (EcfsArchive *self);

/** Notes whether the endpoint at @position lacks the newest snapshot, or part of the journal. */
void ecfs_archive_note_journal (EcfsArchive *self, size_t position, bool lacks);
/** Whether segments of the journal go to an endpoint. */
bool ecfs_archive_has_journal (const EcfsArchiveEndpoint *endpoint);
/** Makes the codecs of all codes in use, not only of the default: what they may lose counts from then on. */
bool ecfs_archive_load_codes (EcfsArchive *self, GError **error);
/** The same again, as other mounts may have begun to use some since. */
bool ecfs_archive_look_for_codes (EcfsArchive *self, GError **error);
/** At how many endpoints the journal has to be: one more than may vanish, as far as there are so many. */
unsigned ecfs_archive_journal_copies (EcfsArchive *self);

/* estimates.c: what endpoints usually are, in the catalog */
/** Before the endpoints are started. */
void ecfs_archive_load_estimates (EcfsArchive *self);
/** Nothing when readonly. */
void ecfs_archive_keep_estimates (EcfsArchive *self);

#endif
