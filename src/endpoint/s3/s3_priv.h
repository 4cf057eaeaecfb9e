/*
 * What the files of the S3 driver share. endpoint/web/http.h has calls and connections.
 *
 *   s3.c           the driver and its dialect: signed headers, and what is asked again
 *   s3_config.c    URL and options
 *   s3_login.c     access keys and region, from where the AWS tools keep them
 *   s3_failure.c   what answers mean
 *   s3_connect.c   whether the bucket is there for us
 *   s3_write.c     uploads, whole and in parts
 *   s3_list.c s3_ops.c       other requests of the core, each made of calls
 *   s3_sign.c s3_text.c      signatures and documents: pure functions
 *
 * A name below the root is the key PREFIX/NAME. A root with a prefix is there when any key begins with it; one that we
 * make is an empty object "PREFIX/". Nothing is renamed: an object is there whole or not at all. An upload in parts
 * that has not ended is in lists as a file in "incoming/", which can be removed.
 */
#ifndef ECFS_ENDPOINT_S3_S3_PRIV_H
#define ECFS_ENDPOINT_S3_S3_PRIV_H

#include "endpoint/s3/s3_sign.h"
#include "endpoint/s3/s3_text.h"
#include "endpoint/web/http.h"

typedef enum EcfsS3Style { ECFS_S3_STYLE_ANY, ECFS_S3_STYLE_PATH, ECFS_S3_STYLE_HOST } EcfsS3Style;

/* Whether the store does If-None-Match: *, with a PUT or with the list of parts. */
typedef enum EcfsS3Conditions {
    ECFS_S3_CONDITIONS_UNKNOWN,
    ECFS_S3_CONDITIONS_PROBED, /* somebody is finding out; of the list of parts only */
    ECFS_S3_CONDITIONS_KEPT,
    ECFS_S3_CONDITIONS_IGNORED, /* or refused, or inverted */
} EcfsS3Conditions;

typedef struct EcfsS3Config {
    EcfsHttpConfig http; /* base: of endpoint_url, NULL for AWS; root is made when connecting */
    char *bucket;
    char *prefix; /* "", or what all keys begin with, with "/" at its end */
    EcfsS3Style style;
    char *region; /* NULL: by the user's settings, or as the server says */
    char *profile;
    char *key_file;
    char *storage_class;
    char *lock_mode; /* GOVERNANCE or COMPLIANCE; NULL: no retention is asked for */
    int64_t lock_us;
    bool retains; /* what is refused to be deleted is meant to stay */
    uint64_t part_bytes;
    atomic_int *conditions; /* EcfsS3Conditions; of all connections, as the next */
    atomic_int *conditions_with_parts;
} EcfsS3Config;

/* Everything is of the slot's thread. */
typedef struct EcfsS3 {
    EcfsHttp http;
    EcfsHttpConfig own; /* its base and root are this connection's, the rest is borrowed from config */
    const EcfsS3Config *config;
    EcfsS3Key key;
    char *region;
    char *host;        /* as in the header */
    char *bucket_path; /* of the bucket at the server */
} EcfsS3;

static inline EcfsS3 *ecfs_s3 (EcfsHttp *http)
{
    return (EcfsS3 *) http;
}

extern const EcfsHttpDialect ecfs_s3_dialect;

/* s3.c */
/** Appends the header that has the MD5 of a body: servers want it wherever the bucket locks what it stores. */
struct curl_slist *ecfs_s3_add_md5 (struct curl_slist *list, const void *bytes, size_t size);

/* s3_config.c */
void *ecfs_s3_new_config (const EcfsEndpointSpec *spec, GError **error);
void ecfs_s3_free_config (void *config);

/* s3_login.c */
/** Finds access key and region. */
bool ecfs_s3_login (EcfsS3 *self, GError **error);
void ecfs_s3_key_clear (EcfsS3Key *key);

/* s3_failure.c */
GError *ecfs_s3_refusal (EcfsHttpOp *op, const char *name);
/** The values of an answer's document that was kept; clear them. All NULL where there is none. */
void ecfs_s3_answer_values (const EcfsHttpCall *call, EcfsS3Values *ret_values);
/** Whether the document is an error, whatever the status says. */
bool ecfs_s3_is_error (const EcfsHttpCall *call);
/** Whether the server did what S3 answers without a document: PUT and DELETE. What does come then is an error, or a
 * page of something on the way. */
bool ecfs_s3_did (const EcfsHttpCall *call);

/* s3_connect.c */
void *ecfs_s3_connect (EcfsSlot *slot, bool make_root, GError **error);
void ecfs_s3_disconnect (void *connection);

/* s3_write.c */
void ecfs_s3_write_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_s3_mark_begin (EcfsHttp *self, EcfsStream *request);

/* s3_list.c */
void ecfs_s3_list_begin (EcfsHttp *self, EcfsStream *request);
/** Takes the request: gives up the upload in parts that is listed by its name. */
void ecfs_s3_remove_unfinished_begin (EcfsHttp *self, EcfsStream *request);

/* s3_ops.c */
void ecfs_s3_remove_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_s3_renew_begin (EcfsHttp *self, EcfsStream *request);
/** A moment as headers and documents have it, whole seconds behind it; g_free (). */
char *ecfs_s3_moment (int64_t time_us);
void ecfs_s3_rmdir_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_s3_size_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_s3_space_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_s3_examine_begin (EcfsHttp *self, EcfsStream *request);

#endif
