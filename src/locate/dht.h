/*
 * A distributed hash table: values of some kilobytes at keys, kept by whoever takes part, for about ten minutes each.
 * Nothing in it is to be believed: anybody may put a value at a key he knows, and that there is none means nothing.
 *
 * It is OpenDHT's, in a process of its own, ecfs-locate, which is started with the first question and again when it has
 * ended, or does not answer. Life cycle: new → questions → free. Thread-safe but for free (). Its locks are inner to
 * all others.
 */
#ifndef ECFS_LOCATE_DHT_H
#define ECFS_LOCATE_DHT_H

#include "locate/locate_text.h"
#include "util/error.h"

#define ECFS_DHT_NODES_MAX 64 /* in a list */

typedef struct EcfsDht EcfsDht;

typedef struct EcfsDhtParams {
    unsigned port;         /* UDP; 0, or one that somebody else has: any */
    uint32_t network;      /* nodes of others are not talked to; no secret */
    const char *bootstrap; /* "HOST:PORT, HOST:PORT" of nodes that know others; NULL: others will find this one */
    int64_t mute_us;       /* an ecfs-locate that has not answered for so long is ended; 0: 30 seconds */
} EcfsDhtParams;

/** ENOTSUP: there is no ecfs-locate. EINVAL: no list. */
EcfsDht *ecfs_dht_new (const EcfsDhtParams *params, GError **error);
/** What was asked must have been awaited. NULL is accepted. */
void ecfs_dht_free (EcfsDht *self);
/** All that waits ends soon, and what is asked from now on at once: ECANCELED. */
void ecfs_dht_stop (EcfsDht *self);

typedef struct EcfsDhtQuestion EcfsDhtQuestion;

/** A key from what is kept secret, or not. */
void ecfs_dht_key (const uint8_t *secret, size_t secret_bytes, const void *salt, size_t salt_bytes, const char *label,
                   uint8_t ret_key[ECFS_LOCATE_KEY_BYTES]);

/** Begin a question, which ecfs_dht_await () ends. @size: up to ECFS_LOCATE_VALUE_MAX. Wait until the helper runs, or
 * @deadline_us. */
EcfsDhtQuestion *ecfs_dht_put (EcfsDht *self, const uint8_t key[ECFS_LOCATE_KEY_BYTES], const void *bytes, size_t size,
                               int64_t deadline_us);
EcfsDhtQuestion *ecfs_dht_get (EcfsDht *self, const uint8_t key[ECFS_LOCATE_KEY_BYTES], int64_t deadline_us);

/**
 * Frees the question. Of a get returns the values (GBytes) that were found, as those who have them say; of a put none.
 * NULL: no node has answered, ENOTCONN; or not in time, ETIMEDOUT; or ECANCELED.
 */
GPtrArray *ecfs_dht_await (EcfsDhtQuestion *question, int64_t deadline_us, GError **error);

typedef struct EcfsDhtState {
    bool is_up;
    unsigned port; /* 0: not known */
    uint64_t n_puts;
    uint64_t n_gets;
    uint64_t n_unanswered; /* of both */
    char *problem;         /* why it does not run; NULL: none; owned */
} EcfsDhtState;

void ecfs_dht_state (EcfsDht *self, EcfsDhtState *ret_state);
void ecfs_dht_state_clear (EcfsDhtState *state);

#endif
