#include "codec/graph.h"

/* clang-format off */
/*
 * The best graphs that tools/research/ldpc-search found, but for two: 50+50 is the extended quadratic-residue code of length 104,
 * shortened and punctured twice each, which survives two losses more than what was found; 100+100 is the first pattern
 * of weight 19 that was tried. `ldpc-search --shipped --sums 400000000000` computes all figures again in some minutes;
 * with fewer sums less is shown for the largest two. Tolerance
 * is exact (true): it was shown by sums of rows of generator matrices, and for n up to 32 or so by trying every loss set
 * (tests/codec/test_ldpc.c). Overhead is from all loss sets for n up to 22, else from 300,000 random orders.
 */
const EcfsShippedGraph ecfs_shipped_graphs[] = {
    {4, 2, 1, true, 1.0500, "2 3"},
    {4, 4, 3, true, 1.0500, "e"},
    {5, 5, 3, true, 1.0698, "17"},
    {6, 3, 1, true, 1.0648, "2 7 5 3 1 6"},
    {6, 6, 3, true, 1.0799, "33 15 2d 2a 1b 3c"},
    {8, 3, 1, true, 1.0553, "2 5 7"},
    {8, 4, 2, true, 1.0553, "6 d"},
    {8, 6, 3, true, 1.0746, "2e 7 23 19 15 34 38 b"},
    {8, 8, 4, true, 1.0840, "74"},
    {10, 6, 3, true, 1.0617, "3e 32 b 1a 26 1d 31 25 e 29"},
    {10, 10, 5, true, 1.0713, "1f2"},
    {12, 4, 1, true, 1.0436, "5 d 7 a 9 c e f 6 8 3 b"},
    {12, 12, 7, true, 1.0594, "5ec"},
    {16, 8, 3, true, 1.0538, "56 6c"},
    {16, 16, 7, true, 1.0692, "84fc"},
    {20, 10, 4, true, 1.0512, "20b 266"},
    {20, 20, 8, true, 1.0630, "e3015"},
    {32, 16, 5, true, 1.0427, "d82 fb5e"},
    {32, 32, 11, true, 1.0472, "51849328"},
    {50, 50, 17, true, 1.0318,
     "2b8ac87126cf 1d55f4b80af71 e3a1632e18c9 311530ba541ba 718be31146c4 16b4d0159c28c a7bfb7419be6 1d40fd1c8d01e "
     "2416e02b82852 30ba8368ad281 2aa8119ad8da2 33f3c620b994f 394fe9f3918c0 25e87d6b60841 23e69f98e922a "
     "2d3a0c2392018 d0abe844a1d9 33180b57de789 bbac86ac02a3 2907203c56f4e 599a21b4ec8c 247382d1ce576 b9aaad2b5ffa "
     "18911b81e4611 2d294bd51179 7f2a82d30d5f 35cbf4431420d 333affd5e23aa 180143fe847 84e3bdc85073 16101ad07a212 "
     "3ec5c8646a408 39dd10131f0db 97f88a406c5a 3b3550d7683d5 1ba56539c04d2 2803212711722 310b05dd8671a 23b804c68f1e9 "
     "30ad29f769c7 255713af8a496 3272081eb5928 70420296534b 175b12d691544 99261d28fd8c 3630d3e931fa0 38a6a9ad16191 "
     "20bf263136027 1453179adc430 279b55f60c3a0"},
    {100, 100, 19, true, 1.0161, "34482100c80201180c208800"},
};
/* clang-format on */

const size_t ecfs_n_shipped_graphs = G_N_ELEMENTS (ecfs_shipped_graphs);
