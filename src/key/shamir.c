#include "key/shamir.h"

#include "key/key.h"
#include <assert.h>

/* Neither tables nor branches: what a cache remembers would tell of the secret. */
static uint8_t multiply (uint8_t a, uint8_t b)
{
    unsigned product = 0, factor = a;
    for (unsigned bit = 0; bit < 8; bit++) {
        product ^= factor & -(unsigned) (b >> bit & 1);
        factor = factor << 1 ^ (0x11d & -(factor >> 7));
    }
    return (uint8_t) product;
}

/* a^254; 0 of 0. */
static uint8_t invert (uint8_t a)
{
    uint8_t inverse = 1;
    for (unsigned i = 0; i < 7; i++) {
        a = multiply (a, a);
        inverse = multiply (inverse, a);
    }
    return inverse;
}

void ecfs_secret_split (const uint8_t secret[ECFS_SECRET_BYTES], unsigned threshold, unsigned n, EcfsCipher *stream,
                        EcfsShare *ret_shares)
{
    uint8_t coefficients[ECFS_SHARES_MAX]; /* of x, x^2, ... */
    assert (threshold >= 1 && threshold <= n && n <= ECFS_SHARES_MAX);
    for (unsigned i = 0; i < n; i++)
        ret_shares[i].x = (uint8_t) (i + 1);
    for (unsigned byte = 0; byte < ECFS_SECRET_BYTES; byte++) {
        memset (coefficients, 0, threshold - 1);
        ecfs_cipher_next (stream, coefficients, threshold - 1);
        for (unsigned i = 0; i < n; i++) {
            uint8_t y = 0;
            for (unsigned c = threshold - 1; c > 0; c--)
                y = multiply ((uint8_t) (y ^ coefficients[c - 1]), ret_shares[i].x);
            ret_shares[i].y[byte] = y ^ secret[byte];
        }
    }
    ecfs_key_forget (coefficients, sizeof coefficients);
}

/* By Lagrange at 0: the sum of y[i] × the product of x[j] / (x[i] + x[j]) over the others. */
bool ecfs_secret_join (const EcfsShare *shares, unsigned threshold, uint8_t ret_secret[ECFS_SECRET_BYTES])
{
    bool seen[ECFS_SHARES_MAX + 1] = {true};
    for (unsigned i = 0; i < threshold; i++) {
        if (seen[shares[i].x])
            return false;
        seen[shares[i].x] = true;
    }
    memset (ret_secret, 0, ECFS_SECRET_BYTES);
    for (unsigned i = 0; i < threshold; i++) {
        uint8_t weight = 1;
        for (unsigned j = 0; j < threshold; j++) {
            if (j != i)
                weight = multiply (weight, multiply (shares[j].x, invert (shares[i].x ^ shares[j].x)));
        }
        for (unsigned byte = 0; byte < ECFS_SECRET_BYTES; byte++)
            ret_secret[byte] ^= multiply (shares[i].y[byte], weight);
    }
    return true;
}
