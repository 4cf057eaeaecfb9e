/*
 * ecfs.conf: an INI key file with one [archive] section and one [endpoint NAME] section per endpoint. Parsed as a
 * whole: all problems are told at once, each with its line. The result is const while the archive is open.
 */
#ifndef ECFS_ARCHIVE_CONFIG_H
#define ECFS_ARCHIVE_CONFIG_H

#include "endpoint/endpoint.h"
#include "object/policy.h"

typedef struct EcfsConfigEndpoint {
    EcfsEndpointSpec *spec;
    char *zone;    /* default: the endpoint's name */
    bool has_zone; /* it is given */
} EcfsConfigEndpoint;

/* Whether an endpoint may hold more than one stripe of an object. */
typedef enum EcfsDoubling {
    ECFS_DOUBLE_NO,
    ECFS_DOUBLE_YES,
    ECFS_DOUBLE_TEMPORARY, /* yes until there are enough endpoints; what is stored so is less safe than is wanted */
} EcfsDoubling;

typedef struct EcfsConfig {
    char *code;
    bool rs_liberasurecode;    /* rs_provider = liberasurecode */
    uint64_t segment_size;     /* bytes, 64 KiB to 64 MiB */
    bool commit_async;         /* commit = async */
    bool close_quorum;         /* close_at = quorum */
    bool fsync_remote;         /* fsync = remote */
    unsigned write_quorum;     /* stripes; 0 is auto: decodable after tolerance/2 (rounded up) further losses */
    uint64_t small_file;       /* bytes; files up to this are stored as copies; 0 switches that off */
    uint64_t object_max;       /* bytes of content in an object; larger files are several objects */
    bool rewrite_deny;         /* rewrite = deny: strictly write-once */
    uint64_t rewrite_max;      /* bytes of committed content that may be copied up to staging */
    uint64_t transfer_memory;  /* bytes for segments in memory */
    uint64_t staging_max;      /* bytes; 0: all the disk but staging_reserve */
    uint64_t staging_reserve;  /* bytes of the disk that staging leaves for the catalog */
    uint64_t cache_size;       /* bytes of what was read that are kept on the local disk; 0: none */
    char *catalog;             /* where PostgreSQL is that has it (catalog/pg.h); NULL: a file here; owned */
    bool catalog_many;         /* catalog_mounts = many */
    char *cache;               /* the directory for that; NULL: in the archive directory; owned */
    char *peers;               /* a list of HOST:PORT that are asked before endpoints, and "dht"; NULL: none; owned */
    char *peer_listen;         /* ADDRESS:PORT where peers are served; NULL: none are; owned */
    uint64_t peer_rate;        /* bytes per second that are served; 0: no limit */
    uint64_t peer_connections; /* that are served at once */
    uint64_t dht_port;         /* UDP, of our node of a distributed hash table; 0: any */
    char *dht_bootstrap;       /* a list of HOST:PORT of others; NULL: the hosts of peers; owned */
    EcfsReadPolicy read_policy;
    bool read_cheap; /* read_preference = cheap */
    EcfsDoubling allow_double;
    bool repair_off;      /* repair = off: nothing is repaired behind */
    uint64_t repair_rate; /* bytes per second that repairs behind may read and write; 0: no limit */
    int64_t catalog_timeout_us;
    int64_t deletion_grace_us;
    int64_t journal_interval_us; /* what nobody waits for is in the journal at the endpoints within so long */
    int64_t history_us;     /* for so long the past can be shown, and what was deleted brought back; 0: no longer */
    int64_t history_min_us; /* for so long of it, whatever room it takes */
    unsigned delete_brake;  /* percent of the files: more lost within an hour are a mass deletion; 0: none is */
    uint64_t history_max;   /* bytes of stripes that only the past has; 0: any number */
    int64_t close_timeout_us;
    char *policy;          /* of what is cold, as text (policy.h); owned */
    int64_t pack_after_us; /* small files wait so long, at most, until they are packed with others */
    char *on_event;        /* a command that is told what happens; NULL: none; owned */
    char *hook;            /* the form of it before; NULL: none; owned */
    GPtrArray *endpoints;  /* of EcfsConfigEndpoint, in file order */
} EcfsConfig;

/* A key of [archive], for parsing, for `ecfs init --set` and for the manual page. */
typedef struct EcfsConfigOption {
    const char *key;
    const char *values; /* what may stand there, for people; NULL: a code, as ecfs_codec_forms () tells */
    const char *preset; /* the default, as it would be written */
    const char *help;   /* one line */
    enum {
        ECFS_OPTION_CODE,
        ECFS_OPTION_SIZE,
        ECFS_OPTION_DURATION,
        ECFS_OPTION_CHOICE,
        ECFS_OPTION_QUORUM,
        ECFS_OPTION_PERCENT,
        ECFS_OPTION_POLICY,
        ECFS_OPTION_COLD,
        ECFS_OPTION_DOUBLING,
        ECFS_OPTION_COMMAND,
        ECFS_OPTION_PLACE,
        ECFS_OPTION_CATALOG,
        ECFS_OPTION_PEERS,
        ECFS_OPTION_LIMIT
    } kind;
    size_t offset;          /* of the field in EcfsConfig */
    int64_t min, max;       /* bytes or microseconds */
    bool is_local;          /* says nothing about what is stored: the journal does not have it */
    const char *choices[2]; /* the words for false and true */
} EcfsConfigOption;

/** Whether a key belongs to the archive, wherever it is; others are for this machine alone, and are not taken from what
 * endpoints say. */
bool ecfs_config_travels (const char *key);

/** Whether endpoints and zones may be called that. */
bool ecfs_config_name_is_valid (const char *name);

/** In the order in which they are written; the last has a NULL key. */
extern const EcfsConfigOption ecfs_config_options[];

/** Since when the past is kept, in ns since 1970: INT64_MAX where none is. */
int64_t ecfs_config_history_since (const EcfsConfig *config);

/** For how long the past is kept whatever room it takes. */
int64_t ecfs_config_history_least_us (const EcfsConfig *config);

/** The defaults, without endpoints. */
EcfsConfig *ecfs_config_new (void);
void ecfs_config_free (EcfsConfig *config);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsConfig, ecfs_config_free)

/** Sets one key of [archive] from its text. EINVAL: unknown key, or a value that it does not take. */
bool ecfs_config_set (EcfsConfig *self, const char *key, const char *value, GError **error);

/**
 * Makes an endpoint's section from @spec (taken, also on failure), whose option "zone" becomes the zone. EINVAL with
 * what is wrong in name, URL, keys or values.
 */
EcfsConfigEndpoint *ecfs_config_endpoint_new (EcfsEndpointSpec *spec, GError **error);
void ecfs_config_endpoint_free (EcfsConfigEndpoint *endpoint);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsConfigEndpoint, ecfs_config_endpoint_free)

/** Adds @endpoint (taken, also on failure). EINVAL when its name or URL is there already. */
bool ecfs_config_add_endpoint (EcfsConfig *self, EcfsConfigEndpoint *endpoint, GError **error);

/** The section of the endpoint with this name, or NULL. */
const EcfsConfigEndpoint *ecfs_config_endpoint (const EcfsConfig *self, const char *name);

/** The library that computes rs codes, for ecfs_codec_new_by (). */
const char *ecfs_config_rs_provider (const EcfsConfig *self);

/** What no key can tell alone: the quorum fits the code (EINVAL), and what provides codes is built in (ENOTSUP). */
bool ecfs_config_check (const EcfsConfig *self, GError **error);

/**
 * Parses the text of a configuration; @name is what messages call it. EINVAL with one line "name:LINE: what is wrong"
 * per problem: unknown sections, unknown keys, keys given twice, values out of range, two endpoints of one name or URL.
 */
EcfsConfig *ecfs_config_parse (const char *text, const char *name, GError **error);

/** The text that ecfs_config_parse () reads back to the same, with a comment per key for people; g_free (). */
char *ecfs_config_format (const EcfsConfig *config);

/** The value of a key of [archive], as it would be written; g_free (). */
char *ecfs_config_format_option (const EcfsConfig *config, const EcfsConfigOption *option);

/* A key that gets another value. */
typedef struct EcfsConfigChange {
    char *section; /* "archive", "endpoint NAME" */
    char *key;
    char *value;
} EcfsConfigChange;

/**
 * The text of a configuration with one key changed, or added behind the last one of its section; all else stays as it
 * is, byte for byte. g_free (). NULL: it has no such section.
 */
char *ecfs_config_edit (const char *text, const char *section, const char *key, const char *value);

#define ECFS_CONFIG_PREVIOUS ".previous" /* behind the file's name */

/**
 * Makes changes in the ecfs.conf of @directory at once, or none: what comes out is checked as when it is read. What it
 * was is kept beside it. The caller makes sure that nobody who has it open goes on as before.
 */
bool ecfs_config_rewrite (const char *directory, const EcfsConfigChange *changes, size_t n, GError **error);
/** Takes a section out of it in the same way; nothing happens when it has none. */
bool ecfs_config_remove (const char *directory, const char *section, GError **error);

/** The section of one endpoint, to be appended to a configuration whose comments are to stay; g_free (). */
char *ecfs_config_format_endpoint (const EcfsConfigEndpoint *endpoint);

#endif
