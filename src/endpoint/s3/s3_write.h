/*
 * What the files of an upload share: s3_write.c (begins it, takes bytes from its source, ends it), s3_parts.c (sends it
 * in parts), s3_commit.c (makes the name). s3_write.c has the states.
 */
#ifndef ECFS_ENDPOINT_S3_S3_WRITE_H
#define ECFS_ENDPOINT_S3_S3_WRITE_H

#include "endpoint/s3/s3_priv.h"

typedef enum EcfsS3WriteState {
    ECFS_S3_WRITE_FILLING,
    ECFS_S3_WRITE_CREATING,
    ECFS_S3_WRITE_PROBING,
    ECFS_S3_WRITE_LOOKING,
    ECFS_S3_WRITE_STORING,
    ECFS_S3_WRITE_CHECKING,
} EcfsS3WriteState;

typedef struct EcfsS3Write EcfsS3Write;

/* An op that sends bytes which are here: the upload itself, or a part of it. */
typedef struct EcfsS3Send {
    EcfsHttpOp op;
    EcfsS3Write *write;  /* that it is of; of a part NULL once that has ended */
    GByteArray *buffer;  /* of the upload NULL while parts have all that it may have */
    size_t sent;         /* how much of it libcurl has, … */
    size_t acknowledged; /* … and had at most: what is sent again was acknowledged before */
} EcfsS3Send;

struct EcfsS3Write {
    EcfsS3Send send; /* its buffer is what is filled, and sent where it is all */
    EcfsS3WriteState state;
    const char *name;
    bool replace;
    char *claimed;         /* the name, from the commit on; the request may be gone before the op */
    uint64_t taken;        /* bytes of the source, in all */
    uint64_t acknowledged; /* of these, as many */
    const uint8_t *rest;   /* lent, and not yet in the buffer */
    size_t rest_size;
    EcfsPull last;      /* what the source answered last */
    char *upload_id;    /* NULL: it has no parts, so far */
    GPtrArray *parts;   /* EcfsS3Send, under way */
    GPtrArray *etags;   /* of all parts; NULL of those under way */
    unsigned n_extra;   /* buffers that it has beyond one, of what all uploads may have */
    char *probe_id;     /* of an upload that is to come to nothing; NULL: there is none */
    char *document;     /* the list of parts */
    char token[17];     /* of this upload */
    unsigned n_probes;  /* of the store */
    bool conditional;   /* STORING: only if the name is not there */
    bool refused;       /* CHECKING: the server said that the name is there */
    bool awaited;       /* CHECKING: it may be at it still */
    bool unconditional; /* conditions do not work for this one */
    bool has_probed;    /* the store, for conditions with the list of parts, or … */
    bool probes;        /* … is at it */
};

/* s3_write.c */
/** Ends the upload; @error is taken, NULL is success. */
void ecfs_s3_write_end (EcfsS3Write *self, GError *error);
GError *ecfs_s3_write_cancelled (const EcfsS3Write *self);
/** Goes on with its source. */
void ecfs_s3_write_fill (EcfsS3Write *self);
/** Sends all of the buffer with a PUT. */
void ecfs_s3_send (EcfsS3Send *self, const char *query, struct curl_slist *headers,
                   void (*done) (EcfsHttp *, EcfsHttpOp *));
/** Whether the answer is the one to a PUT that was done, and all was sent before it. */
bool ecfs_s3_is_put (const EcfsS3Send *self, const char *name, GError **error);
/** The headers that are of the buffer. */
struct curl_slist *ecfs_s3_body_headers (const EcfsS3Send *self);
/** Appends what goes with a new object, whether it comes in parts or not. */
struct curl_slist *ecfs_s3_object_headers (const EcfsS3Write *self, struct curl_slist *list);

/* s3_parts.c */
/** Begins an upload in parts with the buffer, which is full. */
void ecfs_s3_parts_create (EcfsS3Write *self);
/** Sends the buffer, which goes with it, as the next part. */
void ecfs_s3_parts_send (EcfsS3Write *self);
/** Whether there is a buffer for the next part, now. */
bool ecfs_s3_parts_have_room (EcfsS3Write *self);
/** Ends what is under way; what is stored goes in the background. */
void ecfs_s3_parts_give_up (EcfsS3Write *self);
/** Lets go of what is under way: the upload is no more. */
void ecfs_s3_parts_clear (EcfsS3Write *self);
/** The document that puts parts together; g_free (). */
char *ecfs_s3_parts_list (char *const *etags, guint n);

/* s3_commit.c */
/** Makes the name, of what is stored in parts or of what is in the buffer. */
void ecfs_s3_commit (EcfsS3Write *self);
/** Lets go of what others wait for. */
void ecfs_s3_commit_clear (EcfsS3Write *self);

#endif
