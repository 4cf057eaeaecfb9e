/*
 * Signatures of requests (AWS Signature Version 4). Pure functions.
 *
 * libcurl can sign, too. What it signs has changed from version to version: 7.88 takes the query as it is and signs
 * headers that it does not send, 7.81 has no header for the content, and none can sign with another clock or tell what
 * it signed. So we do it.
 */
#ifndef ECFS_ENDPOINT_S3_S3_SIGN_H
#define ECFS_ENDPOINT_S3_S3_SIGN_H

#include "util/error.h"

#include <stddef.h>
#include <stdint.h>

#define ECFS_S3_HASH_SIZE  65 /* hexadecimal digits, and the end */
#define ECFS_S3_STAMP_SIZE 17 /* 20261127T013900Z */
#define ECFS_S3_UNSIGNED   "UNSIGNED-PAYLOAD"

typedef struct EcfsS3Key {
    char *access;
    char *secret;
    char *token; /* of a session; NULL: none */
} EcfsS3Key;

typedef struct EcfsS3Signing {
    const EcfsS3Key *key;
    const char *region;
    const char *stamp; /* as of ecfs_s3_stamp () */
    const char *method;
    const char *host;           /* as in the header of that name */
    const char *path;           /* escaped */
    const char *query;          /* as of ecfs_s3_query (); may be NULL */
    const char *const *headers; /* "Name: value", NULL-terminated; Content-MD5 and x-amz-* are signed, others not */
    const char *content;        /* the hash of the body, or ECFS_S3_UNSIGNED; one of the headers says so, too */
} EcfsS3Signing;

/** The SHA-256 of @bytes in hexadecimal. */
void ecfs_s3_hash (const void *bytes, size_t size, char ret_hash[ECFS_S3_HASH_SIZE]);
/** A time since 1970 as requests tell it. */
void ecfs_s3_stamp (int64_t time_s, char ret_stamp[ECFS_S3_STAMP_SIZE]);
/** All but letters, digits and "-._~" as %XX, and "/" unless @slash is false; g_free (). */
char *ecfs_s3_escape (const char *text, bool slash);
/** A query of keys and values, which follow each other up to NULL, escaped and in the order that is signed; g_free ().
 * A value that is NULL leaves its key out. */
char *ecfs_s3_query (const char *key, ...) G_GNUC_NULL_TERMINATED;
/** The value of the header Authorization; g_free (). */
char *ecfs_s3_sign (const EcfsS3Signing *what);

#endif
