#include "rows.h"

const Row codec_rows[] = {
    {"rs:2+1", ECFS_CODE_RS, 2, 3, 1, "copies:2", NULL},
    {"rs:4+2", ECFS_CODE_RS, 4, 6, 2, "copies:3", NULL},
    {"rs:5+3", ECFS_CODE_RS, 5, 8, 3, "copies:4", NULL},
    {"rs:8+3", ECFS_CODE_RS, 8, 11, 3, "copies:4", NULL},
    {"rs:8+6", ECFS_CODE_RS, 8, 14, 6, "copies:7", NULL},
    {"rs:1+3", ECFS_CODE_RS, 1, 4, 3, "copies:4", NULL},
    {"rs:1+31", ECFS_CODE_RS, 1, 32, 31, "copies:32", NULL},
    {"rs:31+1", ECFS_CODE_RS, 31, 32, 1, "copies:2", NULL},
    {"rs:16+16", ECFS_CODE_RS, 16, 32, 16, "copies:17", NULL},
    {"rs:20+8", ECFS_CODE_RS, 20, 28, 8, "copies:9", NULL},
#ifdef ECFS_WITH_LIBERASURECODE
    {"rs:4+2", ECFS_CODE_RS, 4, 6, 2, "copies:3", "liberasurecode"},
    {"rs:5+3", ECFS_CODE_RS, 5, 8, 3, "copies:4", "liberasurecode"},
    {"rs:1+31", ECFS_CODE_RS, 1, 32, 31, "copies:32", "liberasurecode"},
    {"rs:31+1", ECFS_CODE_RS, 31, 32, 1, "copies:2", "liberasurecode"},
    {"rs:16+16", ECFS_CODE_RS, 16, 32, 16, "copies:17", "liberasurecode"},
    {"xor:3+3", ECFS_CODE_XOR, 3, 6, 2, "copies:3", NULL},
    {"xor:10+5", ECFS_CODE_XOR, 10, 15, 3, "copies:4", NULL},
    {"xor:20+6", ECFS_CODE_XOR, 20, 26, 3, "copies:4", NULL},
#endif
    {"copies:1", ECFS_CODE_COPIES, 1, 1, 0, "copies:1", NULL},
    {"copies:2", ECFS_CODE_COPIES, 1, 2, 1, "copies:2", NULL},
    {"copies:5", ECFS_CODE_COPIES, 1, 5, 4, "copies:5", NULL},
    {"copies:32", ECFS_CODE_COPIES, 1, 32, 31, "copies:32", NULL},
    {"ldpc:5+5", ECFS_CODE_LDPC, 5, 10, 3, "copies:4", NULL},
    {"ldpc:8+6", ECFS_CODE_LDPC, 8, 14, 3, "copies:4", NULL},
    {"ldpc:10+10", ECFS_CODE_LDPC, 10, 20, 5, "copies:6", NULL},
    {"ldpc:20+20", ECFS_CODE_LDPC, 20, 40, 8, "copies:9", NULL},
    {"ldpc:1+1", ECFS_CODE_LDPC, 1, 2, 1, "copies:2", NULL},
    {"ldpc:4+3", ECFS_CODE_LDPC, 4, 7, 2, "copies:3", NULL},
    {"ldpc:1+128", ECFS_CODE_LDPC, 1, 129, 128, "copies:32", NULL},
    {"ldpc:128+1", ECFS_CODE_LDPC, 128, 129, 1, "copies:2", NULL},
    {"ldpc:128+128", ECFS_CODE_LDPC, 128, 256, 7, "copies:8", NULL},
    {"basic:4+4", ECFS_CODE_BASIC, 4, 8, 2, "copies:3", NULL},
    {"basic:6+6", ECFS_CODE_BASIC, 6, 12, 3, "copies:4", NULL},
    {"basic:8+8", ECFS_CODE_BASIC, 8, 16, 4, "copies:5", NULL},
    {"basic:10+10", ECFS_CODE_BASIC, 10, 20, 5, "copies:6", NULL},
    {"basic:14+14", ECFS_CODE_BASIC, 14, 28, 7, "copies:8", NULL},
    {"basic:32+32", ECFS_CODE_BASIC, 32, 64, 14, "copies:15", NULL},
};

const size_t codec_n_rows = G_N_ELEMENTS (codec_rows);

char *codec_test_path (const Row *row, const char *name)
{
    const char *by = row->provider == NULL ? "" : "-by-", *provider = row->provider == NULL ? "" : row->provider;
    return g_strdup_printf ("/codec/%s%s%s/%s", row->code, by, provider, name);
}
