/*
 * HTTP by libcurl, for the drivers of protocols that are made of it.
 *
 *   http_config.c   URL and options
 *   http_auth.c     who we are: passwords, tokens, certificates
 *   http_call.c     one request and its answer; connections
 *   http_problem.c  what goes wrong on the line
 *   http_loop.c     the event loop
 *   http_read.c     ranges of a file
 *   http_common.c   other requests that all protocols ask alike
 *
 * A connection of the core's is a libcurl multi handle on the slot's thread, with as many connections to the server as
 * it has calls under way: a write that waits for its source keeps one, and others go on beside it. libcurl keeps them
 * for the next. An op is a request of the core, or our own (request NULL), and has at most one call under way.
 *
 * A protocol has a dialect, and a struct of its own whose first member is an EcfsHttp.
 */
#ifndef ECFS_ENDPOINT_WEB_HTTP_H
#define ECFS_ENDPOINT_WEB_HTTP_H

#include "endpoint/core/claims.h"
#include "endpoint/core/driver.h"

#include <curl/curl.h>

typedef struct EcfsHttp EcfsHttp;
typedef struct EcfsHttpOp EcfsHttpOp;

typedef struct EcfsHttpConfig {
    bool dav; /* of dav and davs: nothing less will do */
    bool tls;
    bool http2;
    bool basic;  /* the password may go in clear */
    char *title; /* of the server in messages; NULL: base */
    char *base;  /* "https://host:port" */
    char *root;  /* the path, escaped, without "/" at its end: "" is the top of the server */
    char *plain; /* the same not escaped */
    char *user;
    char *password_file;
    char *token_file;
    char *ca_file; /* or a directory */
    char *client_cert;
    char *client_key;
    EcfsClaims *committing; /* names; who makes one may first have to look whether it is there */
} EcfsHttpConfig;

/* One request to the server. */
typedef struct EcfsHttpCall {
    CURL *easy; /* NULL: none is under way */
    struct curl_slist *headers;
    const char *method;
    char *name; /* that it is about; NULL: none, or the root */
    char problem[CURL_ERROR_SIZE];
    bool paused;        /* it waits for the source: nobody owes anything */
    int64_t again_us;   /* it is asked once more then, and not under way; 0: it is under way */
    unsigned n_repeats; /* how often it was */
    bool patient;       /* as asked, … */
    bool awaited;       /* … likewise */
    bool sent;          /* all of its body is with the server */
    int64_t began_us;
    size_t useless_bytes; /* of a body that nobody wants … */
    bool cut;             /* … which went on for too long */
    size_t moved_bytes;   /* since … */
    int64_t moved_us;     /* … it made progress last */
    unsigned n_answers;   /* interim ones included */

    /* the answer */
    CURLcode result;
    long status;
    int64_t length;        /* of the body; -1: not told */
    int64_t uploaded;      /* bytes that went out, of the body at least */
    unsigned long offered; /* CURLAUTH_*, where it wants to know who we are */
    long version;          /* CURL_HTTP_VERSION_* */
    long verified;         /* X509_V_*: what is wrong with the server's certificate */
    char *content_range;
    char *location;
    char *dav;      /* the header of that name */
    char *server;   /* likewise */
    char *date;     /* likewise */
    char *etag;     /* likewise */
    char *region;   /* x-amz-bucket-region */
    char *upload;   /* x-amz-meta-ecfs-upload */
    char *lock;     /* x-amz-object-lock-mode, … */
    char *until;    /* … and -retain-until-date */
    GString *words; /* the body, where the dialect keeps it and the ask does not take it; its beginning; or NULL */
    bool encoded;   /* not the bytes as they are */
} EcfsHttpCall;

/* What to ask. */
typedef struct EcfsHttpAsk {
    const char *method;
    const char *path;           /* of the server, escaped; NULL: it is about a name */
    const char *name;           /* below the root; "" is the root itself, which ends with "/" as directories do */
    bool directory;             /* the name gets a "/" */
    const char *query;          /* escaped; NULL: none */
    struct curl_slist *headers; /* more of them; taken */
    const char *range;          /* "0-99" */
    const char *destination;    /* MOVE: a name */
    bool replace;
    const char *body;  /* a document; valid until the answer */
    const char *depth; /* of PROPFIND */
    bool upload;
    int64_t upload_bytes; /* -1: not known */
    bool patient;         /* the server works while it sends blanks: each byte of a success is progress */
    bool awaited;         /* it may come into being: the dialect asks for what is not there once more */
    /* The answer's bytes, of any status; false ends the call. */
    bool (*take) (EcfsHttpOp *op, const uint8_t *bytes, size_t size);
    /* Bytes to upload, CURL_READFUNC_PAUSE or _ABORT. */
    size_t (*supply) (EcfsHttpOp *op, char *to, size_t size);
    /* Begins to supply from the first byte again; NULL: it cannot. */
    void (*rewind) (EcfsHttpOp *op);
    void (*done) (EcfsHttp *http, EcfsHttpOp *op);
} EcfsHttpAsk;

/* What a protocol makes of HTTP. */
typedef struct EcfsHttpDialect {
    bool keeps_words; /* bodies that no ask takes, in call.words */
    void (*begin) (EcfsHttp *http, EcfsStream *request);
    /* All headers of a call, for the op's call; NULL ends the connection with the error. */
    struct curl_slist *(*headers) (EcfsHttpOp *op, const EcfsHttpAsk *ask, GError **error);
    /* What an answer that is not wanted means; @name: of what. */
    GError *(*refusal) (EcfsHttpOp *op, const char *name);
    /* After how many microseconds the same is asked again, as the answer says; 0: it stands. May be NULL: all stand. */
    int64_t (*again_us) (EcfsHttpOp *op);
    /* Fills in up to @n descriptors that are waited for, too; returns how many. May be NULL: none. */
    unsigned (*watch) (EcfsHttp *http, struct curl_waitfd *fds, unsigned n);
    /* Looks at these, in every round; where there is watch (). */
    void (*look) (EcfsHttp *http);
    /* What is known of a call that failed in libcurl; NULL: no more than libcurl says. May be NULL. */
    GError *(*explain) (const EcfsHttp *http, const EcfsHttpCall *call);
} EcfsHttpDialect;

struct EcfsHttpOp {
    EcfsHttp *http;
    EcfsStream *request;
    EcfsHttpCall call;
    bool (*take) (EcfsHttpOp *op, const uint8_t *bytes, size_t size);
    size_t (*supply) (EcfsHttpOp *op, char *to, size_t size);
    void (*rewind) (EcfsHttpOp *op);
    void (*done) (EcfsHttp *http, EcfsHttpOp *op);
    void (*turn) (EcfsHttp *http, EcfsHttpOp *op);   /* something may be new for it; may be NULL: it waits for calls */
    void (*cancel) (EcfsHttp *http, EcfsHttpOp *op); /* the request was; ends the op now or soon */
    void (*clear) (EcfsHttpOp *op);                  /* frees what is its own; may be NULL: nothing */
    bool cancelled;
    GList link; /* in ops */
};

/* Everything is of the slot's thread. */
struct EcfsHttp {
    EcfsSlot *slot;
    const EcfsHttpDialect *dialect;
    const EcfsHttpConfig *config;
    char *peer;     /* set before the first call: an abstract UNIX socket that speaks HTTP/2; NULL: calls go to base */
    bool is_opened; /* a connection was made; to a peer there is no other */
    bool met;       /* it was called; the first call is to be the only one until it is answered */
    CURLM *multi;
    GPtrArray *easies; /* that nobody uses now */
    GQueue ops;
    GList *next;        /* of these, while each has its turn: whose is next */
    unsigned n_calls;   /* under way */
    unsigned n_waiting; /* to be asked again, as the server was busy: not the time to ask for more */
    size_t moved_bytes; /* since … */
    bool arrived;       /* … enough came */
    unsigned long auth; /* CURLAUTH_* */
    char *password;
    char *token;
    int64_t token_mtime_ns;
    uint64_t token_inode;
    GError *broken;
};

/* http_config.c */
/** Options that every protocol on HTTP takes. */
#define ECFS_HTTP_OPTION_KEYS "ca_file", "http2"
/** Parses them into @config. */
bool ecfs_http_parse_options (EcfsHttpConfig *config, const EcfsEndpointSpec *spec, GError **error);
/** The option @key of @spec into *value, which stays where it is not given: @no or @yes. */
bool ecfs_http_parse_choice (const EcfsEndpointSpec *spec, const char *key, const char *no, const char *yes,
                             bool *value, GError **error);
/** Decodes @path of @url and checks it: it ends with no "/", and has no part that is empty, "." or ".."; g_free (). */
char *ecfs_http_parse_path (const char *url, const char *path, GError **error);
/** Parses scheme, host, port and path of @url into config->tls (from the end of its scheme), base, root and plain. */
bool ecfs_http_parse_url (EcfsHttpConfig *config, const char *url, GError **error);
void ecfs_http_config_clear (EcfsHttpConfig *config);

/* http_auth.c */
/** Reads what the options name. */
bool ecfs_http_auth_load (EcfsHttp *self, GError **error);
/** Puts it into @easy. The token is read again where its file has changed. */
bool ecfs_http_auth_apply (EcfsHttp *self, CURL *easy, GError **error);
/** Settles how we prove ourselves after the server has offered @offered (CURLAUTH_* bits). False: it offers nothing
 * that we have or dare. */
bool ecfs_http_auth_choose (EcfsHttp *self, unsigned long offered, GError **error);
void ecfs_http_auth_clear (EcfsHttp *self);

/* http_call.c */
/** Fills @self, which is zeroed, with an empty connection. */
bool ecfs_http_init (EcfsHttp *self, EcfsSlot *slot, const EcfsHttpConfig *config, const EcfsHttpDialect *dialect,
                     GError **error);
/** Ends what is left, and frees all but @self itself. */
void ecfs_http_clear (EcfsHttp *self);
/** The URL of a name below the root; g_free (). */
char *ecfs_http_url (const EcfsHttp *self, const char *name, bool directory);
/** Appends a header. */
struct curl_slist *ecfs_http_add_header (struct curl_slist *list, const char *format, ...) G_GNUC_PRINTF (2, 3);
/** Adds an op; freed by ecfs_http_op_end () or _drop (). @size: of the struct whose first member the op is. */
EcfsHttpOp *ecfs_http_op_new (EcfsHttp *self, EcfsStream *request, size_t size);
/** Starts a call of @op, which has none under way: ask->done comes later, unless the connection breaks before. */
void ecfs_http_ask (EcfsHttpOp *op, const EcfsHttpAsk *ask);
/** Ends the call of @op, if any, without an answer: its TCP connection is closed. */
void ecfs_http_hang_up (EcfsHttpOp *op);
/** Goes on with an upload that was paused. */
void ecfs_http_resume (EcfsHttpOp *op);
/** Ends @op and its request; @error (taken) NULL is success. */
void ecfs_http_op_end (EcfsHttpOp *op, uint64_t value, GError *error);
/** Ends @op; the request stays with the core or was finished. */
void ecfs_http_op_drop (EcfsHttpOp *op);
/** Moves bytes, begins again what waits for its time, and tells ops whose calls are done. */
void ecfs_http_move (EcfsHttp *self);
/** When the first call is to begin again; 0: none. */
int64_t ecfs_http_next_us (const EcfsHttp *self);
/** The connection is no good any more; the first reason counts. */
void ecfs_http_break (EcfsHttp *self, GError *error);

/* http_problem.c */
/** A new error with @code, an errno, and a text. */
GError *ecfs_http_error (int code, const char *format, ...) G_GNUC_PRINTF (2, 3);
/** What a call that failed in libcurl means. */
GError *ecfs_http_problem (const EcfsHttp *self, const EcfsHttpCall *call);
/** The server wants a client certificate, or another one. */
GError *ecfs_http_want_certificate (const EcfsHttp *self);
/** What an answer that is not wanted means, or why there is none; @name: of what. */
GError *ecfs_http_refusal (EcfsHttpOp *op, const char *name);

/* http_common.c */
/** An op's cancel () where nothing has to be undone. */
void ecfs_http_cancel (EcfsHttp *self, EcfsHttpOp *op);
/** A call's done () that tells the size of a file from the answer to HEAD. */
void ecfs_http_size_told (EcfsHttp *self, EcfsHttpOp *op);
/** Reads the marker; @name is the marker's in errors, and is taken. */
void ecfs_http_examine_begin (EcfsHttp *self, EcfsStream *request, char *name);

/* http_loop.c */
/** Waits for events, @patience_ms at most. */
void ecfs_http_wait (EcfsHttp *self, int patience_ms);
/** Moves until *over, the time for connecting has passed, or the slot must end. */
bool ecfs_http_drive (EcfsHttp *self, const bool *over, GError **error);
/** A driver's serve (): @connection begins with an EcfsHttp. */
bool ecfs_http_serve (EcfsSlot *slot, void *connection, GError **error);
#define ECFS_HTTP_MAX_WATCHED 32
#define ECFS_HTTP_MAX_ACTIVE  8 /* requests of one connection that do not wait for their source */

/* http_read.c */
void ecfs_http_read_begin (EcfsHttp *self, EcfsStream *request);

/** The server, in messages. */
static inline const char *ecfs_http_title (const EcfsHttpConfig *config)
{
    return config->title != NULL ? config->title : config->base;
}

static inline bool ecfs_http_good (long status)
{
    return status >= 200 && status < 300;
}

#endif
