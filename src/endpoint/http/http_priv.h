/*
 * What the files of the HTTP driver share.
 *
 *   http_config.c    URL and options
 *   http_auth.c      who we are: passwords, tokens, certificates
 *   http_call.c      one request and its answer
 *   http_failure.c   what answers and errors mean
 *   http_connect.c   whether the server is there and what it is
 *   http.c           the event loop
 *   http_read.c http_write.c http_list.c http_ops.c   requests of the core, each made of calls
 *
 * A connection of the core's is a libcurl multi handle on the slot's thread, with as many connections to the server as
 * it has calls under way: a write that waits for its source keeps one, and others go on beside it. libcurl keeps them
 * for the next. An op is a request of the core, or our own (request NULL), and has at most one call under way.
 */
#ifndef ECFS_ENDPOINT_HTTP_HTTP_PRIV_H
#define ECFS_ENDPOINT_HTTP_HTTP_PRIV_H

#include "endpoint/core/claims.h"
#include "endpoint/core/driver.h"
#include "endpoint/http/http_protocol.h"

#include <curl/curl.h>

typedef struct EcfsHttp EcfsHttp;
typedef struct EcfsHttpOp EcfsHttpOp;

typedef struct EcfsHttpConfig {
    bool dav; /* dav, davs: nothing less will do */
    bool tls;
    bool http2;
    bool basic;  /* the password may go in clear */
    char *base;  /* "https://host:port" */
    char *root;  /* the path, escaped, without "/" at its end: "" is the top of the server */
    char *plain; /* the same not escaped */
    char *user;
    char *password_file;
    char *token_file;
    char *ca_file; /* or a directory */
    char *client_cert;
    char *client_key;
    EcfsClaims *committing; /* Apache looks whether the name is there, and then renames */
} EcfsHttpConfig;

/* One request to the server. */
typedef struct EcfsHttpCall {
    CURL *easy; /* NULL: none is under way */
    struct curl_slist *headers;
    const char *method;
    char problem[CURL_ERROR_SIZE];
    bool paused; /* it waits for the source: nobody owes anything */
    bool sent;   /* all of its body is with the server */
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
    char *dav;    /* the header of that name */
    char *server; /* likewise */
    bool encoded; /* not the bytes as they are */
} EcfsHttpCall;

/* What to ask. */
typedef struct EcfsHttpAsk {
    const char *method;
    const char *name;        /* below the root; "" is the root itself, which ends with "/" as directories do */
    bool directory;          /* the name gets a "/" */
    const char *range;       /* "0-99" */
    const char *destination; /* MOVE: a name */
    bool replace;
    const char *body;  /* PROPFIND */
    const char *depth; /* of PROPFIND */
    bool upload;
    int64_t upload_bytes; /* -1: not known */
    /* The answer's bytes, of any status; false ends the call. */
    bool (*take) (EcfsHttpOp *op, const uint8_t *bytes, size_t size);
    /* Bytes to upload, CURL_READFUNC_PAUSE or _ABORT. */
    size_t (*supply) (EcfsHttpOp *op, char *to, size_t size);
    void (*done) (EcfsHttp *http, EcfsHttpOp *op);
} EcfsHttpAsk;

struct EcfsHttpOp {
    EcfsHttp *http;
    EcfsStream *request;
    EcfsHttpCall call;
    bool (*take) (EcfsHttpOp *op, const uint8_t *bytes, size_t size);
    size_t (*supply) (EcfsHttpOp *op, char *to, size_t size);
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
    const EcfsHttpConfig *config;
    CURLM *multi;
    GPtrArray *easies; /* that nobody uses now */
    GQueue ops;
    unsigned n_calls;   /* under way */
    size_t moved_bytes; /* since … */
    bool arrived;       /* … enough came */
    bool dav;           /* it speaks WebDAV: writes, lists */
    bool incoming;      /* the directory for temporary files is there */
    bool checking;      /* whether we are still let in */
    bool tells_space;
    unsigned long auth; /* CURLAUTH_* */
    char *password;
    char *token;
    int64_t token_mtime_ns;
    uint64_t token_inode;
    GError *broken;
};

/* http_config.c */
void *ecfs_http_new_config (const EcfsEndpointSpec *spec, GError **error);
void ecfs_http_free_config (void *config);

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
/** Moves bytes, and tells ops whose calls are done. */
void ecfs_http_move (EcfsHttp *self);
/** The connection is no good any more; the first reason counts. */
void ecfs_http_break (EcfsHttp *self, GError *error);

/* http_failure.c */
/** What a call that failed in libcurl means. */
GError *ecfs_http_problem (const EcfsHttp *self, const EcfsHttpCall *call);
/** What an answer that is not wanted means; @name: of what. Also has the root looked at where we seem to be locked
 * out. */
GError *ecfs_http_refusal (EcfsHttpOp *op, const char *name);
/** What the answer of the root means when connecting. */
GError *ecfs_http_root_refusal (const EcfsHttp *self, const EcfsHttpCall *call);

/* http_connect.c */
extern const char ecfs_http_ask_properties[];
void *ecfs_http_connect (EcfsSlot *slot, bool make_root, GError **error);
void ecfs_http_disconnect (void *connection);
/** Looks whether the root is still there for us; where it is not, the connection breaks. */
void ecfs_http_check (EcfsHttp *self);

/* Requests */
void ecfs_http_read_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_http_write_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_http_mark_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_http_list_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_http_remove_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_http_rmdir_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_http_size_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_http_space_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_http_examine_begin (EcfsHttp *self, EcfsStream *request);

static inline bool ecfs_http_good (long status)
{
    return status >= 200 && status < 300;
}

/* Whether what was asked for is done: 202 says that it may be later, and 207 that it was not for all of it. */
static inline bool ecfs_http_did (long status)
{
    return status == 200 || status == 201 || status == 204;
}

#endif
