#include "object/chain.h"

#include <string.h>

#define PIECE_BYTES 8192 /* that are deciphered at once */

void ecfs_chain_add (GByteArray *self, const EcfsSha256 *sha256)
{
    uint8_t state[ECFS_SHA256_SIZE];
    if (self->len < ECFS_CHAIN_LINKS_MAX * ECFS_CHAIN_LINK_BYTES && ecfs_sha256_state (sha256, state))
        g_byte_array_append (self, state, sizeof state);
}

bool ecfs_chain_end (GByteArray *self, uint64_t n_segments, const uint8_t sha256[ECFS_SHA256_SIZE])
{
    if (n_segments < 2 || n_segments > ECFS_CHAIN_LINKS_MAX || self->len / ECFS_CHAIN_LINK_BYTES + 1 < n_segments)
        return false;
    g_byte_array_set_size (self, (guint) (n_segments - 1) * ECFS_CHAIN_LINK_BYTES); /* one of a whole segment less */
    g_byte_array_append (self, sha256, ECFS_SHA256_SIZE);
    return true;
}

struct EcfsChainCheck {
    EcfsSha256 *sha256;
    EcfsCipher *cipher;
    const uint8_t *link;
    size_t left; /* bytes of content that did not come yet */
    bool is_last;
};

EcfsChainCheck *ecfs_chain_check_new (const GByteArray *chain, const EcfsLayout *layout, const EcfsSealKeys *keys,
                                      uint64_t segment)
{
    EcfsChainCheck *self = g_new (EcfsChainCheck, 1);
    uint64_t offset = segment * layout->segment_bytes;
    *self = (EcfsChainCheck){.sha256 = ecfs_sha256_new (),
                             .cipher = ecfs_cipher_new (keys->content, offset),
                             .link = chain->data + segment * ECFS_CHAIN_LINK_BYTES,
                             .left = ecfs_layout_content_bytes (layout, segment),
                             .is_last = segment + 1 == ecfs_layout_n_segments (layout)};
    if (segment > 0)
        ecfs_sha256_resume (self->sha256, self->link - ECFS_CHAIN_LINK_BYTES, offset);
    return self;
}

void ecfs_chain_check_take (EcfsChainCheck *self, const uint8_t *bytes, size_t size)
{
    uint8_t piece[PIECE_BYTES];
    for (size_t end = MIN (size, self->left), at = 0, n; at < end; at += n) {
        n = MIN (end - at, sizeof piece);
        memcpy (piece, bytes + at, n);
        ecfs_cipher_next (self->cipher, piece, n);
        ecfs_sha256_update (self->sha256, piece, n);
        self->left -= n;
    }
}

bool ecfs_chain_check_fits (EcfsChainCheck *self)
{
    uint8_t found[ECFS_SHA256_SIZE];
    bool is_whole = self->left == 0;
    if (self->is_last)
        ecfs_sha256_end (self->sha256, found);
    else
        is_whole = ecfs_sha256_state (self->sha256, found) && is_whole;
    return is_whole && memcmp (found, self->link, sizeof found) == 0;
}

void ecfs_chain_check_free (EcfsChainCheck *self)
{
    if (self == NULL)
        return;
    ecfs_sha256_free (self->sha256);
    ecfs_cipher_free (self->cipher);
    g_free (self);
}
