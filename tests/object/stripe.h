/* A second implementation of the stripe format, from the page that describes it: shares no code with src/object. */
#ifndef TESTS_OBJECT_STRIPE_H
#define TESTS_OBJECT_STRIPE_H

#include <glib.h>
#include <stdint.h>

/** What a stripe must hold; family 1 copies, 2 Reed-Solomon, 3 ldpc, 4 basic. */
typedef struct StripeExpected {
    const uint8_t *archive, *object; /* 16 bytes each */
    uint64_t instance, sequence;
    uint32_t epoch;
    unsigned family, k, n, index;
    uint32_t segment_bytes, block_bytes, granule;
    const uint8_t *content;
    uint64_t size;
} StripeExpected;

/** Fails the test unless @stripe is, byte for byte, what is expected; sets the digest of its packet area (16 bytes). */
void stripe_check (const uint8_t *stripe, size_t stripe_bytes, const StripeExpected *expected, uint8_t *ret_digest);

#endif
