/*
 * Which keys a known_hosts file gives a host, as sshd(8) describes the format: plain, [host]:port and hashed names,
 * patterns with "*", "?" and "!", the marker @revoked. Pure; @cert-authority lines are skipped, as libssh2 knows no
 * certificates.
 *
 * libssh2 has a parser of its own, which knows neither patterns nor @revoked.
 */
#ifndef ECFS_ENDPOINT_SSH_SSH_KNOWN_HOSTS_H
#define ECFS_ENDPOINT_SSH_SSH_KNOWN_HOSTS_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct EcfsKnownKey {
    char *type; /* "ssh-ed25519" */
    uint8_t *blob;
    size_t blob_bytes;
    bool revoked;
    unsigned line; /* from 1 */
    char *file;
} EcfsKnownKey;

/** Adds to @keys (of EcfsKnownKey) what @text, the content of @file, says about @host at @port. */
void ecfs_known_hosts_find (const char *text, const char *file, const char *host, unsigned port, GPtrArray *keys);

/** An array for ecfs_known_hosts_find () that frees its entries. */
GPtrArray *ecfs_known_hosts_new (void);

typedef enum EcfsKnownVerdict {
    ECFS_HOST_KNOWN,
    ECFS_HOST_UNKNOWN, /* no key at all for this host */
    ECFS_HOST_CHANGED, /* other keys only */
    ECFS_HOST_REVOKED,
} EcfsKnownVerdict;

/** What @keys say about a key that the host showed. @ret_key: the entry that decided, or NULL; borrowed from @keys. */
EcfsKnownVerdict ecfs_known_hosts_judge (const GPtrArray *keys, const void *blob, size_t blob_bytes,
                                         const EcfsKnownKey **ret_key);

/** "[host]:port", or just the host at port 22: how the host is written in known_hosts. g_free (). */
char *ecfs_known_hosts_name (const char *host, unsigned port);

/** "SHA256:..." as ssh-keygen -l prints it. g_free (). */
char *ecfs_key_fingerprint (const void *blob, size_t blob_bytes);

/** The type at the front of a key blob, or NULL when that is no key. g_free (). */
char *ecfs_key_type (const void *blob, size_t blob_bytes);

#endif
