/* The fields of an opened archive; nothing outside this folder sees them. */
#ifndef ECFS_ARCHIVE_ARCHIVE_PRIV_H
#define ECFS_ARCHIVE_ARCHIVE_PRIV_H

#include "archive/common.h"
#include "archive/lineage.h"
#include "archive/located.h"
#include "archive/month.h"
#include "key/ring.h"

#define ECFS_CONFIG_MAX_SIZE (1u << 20)

typedef struct EcfsRevival EcfsRevival;

/** The next endpoint; @config NULL: it is in the catalog only. It counts when n_endpoints says so. With `adding` held,
 * unless nobody else has the archive yet. */
bool ecfs_archive_open_endpoint (EcfsArchive *self, const EcfsEndpointRow *row, const char *name,
                                 const EcfsConfigEndpoint *config, GError **error);
/** ecfs.conf as it is now: endpoints may have been added since the archive was opened. */
EcfsConfig *ecfs_archive_config_now (EcfsArchive *self, GError **error);

struct EcfsArchive {
    char *directory;                /* absolute; immutable */
    EcfsConfig *config;             /* immutable */
    EcfsCatalog *catalog;           /* immutable */
    EcfsKeyRing *keys;              /* NULL: the archive has no key; immutable */
    const EcfsKeyRing *marker_keys; /* the same, NULL also where they are not in use yet */
    EcfsKeyShares *_Atomic shares;  /* NULL: endpoints have nothing of it; changed with `adding` held */
    GPtrArray *former_shares;       /* those before, kept until free; guarded by adding */
    bool readonly;                  /* immutable */
    bool to_destroy;                /* likewise, as the next two */
    atomic_bool leads;              /* what is done once for all that have it mounted is for this one to do */
    bool rotates;                   /* another key is about to be active: nothing is stored under this one */
    bool lacks_keys;                /* it has some, which are lost: nothing can be stored */
    int lock_fd;                    /* -1 when readonly; immutable */
    struct EcfsInUse *in_use;       /* while it is open for changes (in_use.h); NULL */
    /* Room for ECFS_ENDPOINTS_MAX, filled up to n_endpoints, which grows while the archive is open: what needs the same
     * number twice takes it once. Immutable below that. */
    EcfsArchiveEndpoint *endpoints;
    atomic_size_t n_endpoints;
    EcfsTransferPool *transfer; /* immutable */
    EcfsReadLog *read_log;      /* immutable */
    EcfsCache *cache;           /* NULL: there is none; immutable, as the next two */
    EcfsPeers *peers;           /* likewise */
    char *peers_trouble;        /* why there are none that are wanted; or NULL */
    EcfsLocated *located;       /* immutable */
    EcfsWorkers *commits;       /* between start and stop */
    EcfsWorkers *streams;       /* the same for content that is still being written; NULL when readonly */
    EcfsWorkers *puts;          /* the same for content that is not staged; NULL when readonly */
    _Atomic (char *) old_copy; /* why it is one, as was found beside who leads; NULL: it is not known to be; set once */
    GPtrArray *asked_beside;   /* of EcfsLineage, to be freed; the opening thread's, and then the leading ticker's */
    EcfsLineage *_Atomic lineage; /* from start on; NULL when readonly, until it is wanted, and while others lead */
    EcfsSightings *sightings;     /* immutable */
    EcfsMonthBook *month;         /* immutable */
    EcfsSharedReaders *shared_readers;       /* immutable */
    void *_Atomic services[ECFS_N_SERVICES]; /* of the rooms above, each set by its own */
    _Atomic int64_t read_us;                 /* when content was read last */
    atomic_uint n_storing;                   /* attempts under way to store new content */
    atomic_uint n_objects;                   /* made, from any number on */
    atomic_uint n_stripe_changes;            /* times that an object got other stripes than it had; wraps around */
    atomic_uint n_doubts;    /* times that bytes which were read before are not to be believed any more */
    atomic_bool stopping;    /* attempts end with ECANCELED */
    atomic_bool knows_codes; /* those in use are in codes */

    EcfsMutex adding;       /* one endpoint at a time; outer to the next two */
    EcfsMutex snapshotting; /* one snapshot at a time: what another takes looks superfluous to who tidies up */
    EcfsMutex lock;
    GHashTable *codecs;        /* code → EcfsCodec, kept until free; guarded by lock */
    GHashTable *pins;          /* EcfsUuid of objects that are open → number of times; guarded by lock */
    uint64_t foretold_bytes;   /* of content that fits, … ; guarded by lock */
    uint64_t foretold_content; /* … when this much was stored; guarded by lock */
    bool is_foretold;     /* false: nothing fits as far as endpoints have said, and some have not; guarded by lock */
    EcfsRevival *revival; /* endpoints are being tried for an attempt; NULL: not now; guarded by lock */
    int64_t revived_us;   /* when that was done last; guarded by lock */
};

#endif
