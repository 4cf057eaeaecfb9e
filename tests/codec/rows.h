/* Every code that the codec tests are about, and what its text promises. */
#ifndef ECFS_TESTS_CODEC_ROWS_H
#define ECFS_TESTS_CODEC_ROWS_H

#include "codec/codec.h"

typedef struct Row {
    const char *code;
    EcfsCodeFamily family;
    unsigned k, n, tolerance;
    const char *small_code;
    const char *provider;
} Row;

extern const Row codec_rows[];
extern const size_t codec_n_rows;

/** "/codec/CODE-by-PROVIDER/NAME"; g_free (). */
char *codec_test_path (const Row *row, const char *name);

#endif
