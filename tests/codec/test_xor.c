/* Every kernel that this processor can run gives the bytes of the plain one, and touches no others. */
#include "codec/program.h"
#include "segment.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_FROM 40
#define MAX_SIZE (3 * 4096)

/* A page that may be read and written between two that may not. */
static uint8_t *map_guarded (void)
{
    size_t page = (size_t) sysconf (_SC_PAGESIZE);
    size_t inner = (MAX_SIZE + page - 1) / page * page;
    uint8_t *mapping = mmap (NULL, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    g_assert_true (mapping != MAP_FAILED);
    g_assert_cmpint (mprotect (mapping + page, inner, PROT_READ | PROT_WRITE), ==, 0);
    return mapping + page;
}

static void unmap_guarded (uint8_t *bytes)
{
    size_t page = (size_t) sysconf (_SC_PAGESIZE);
    size_t inner = (MAX_SIZE + page - 1) / page * page;
    g_assert_cmpint (munmap (bytes - page, inner + 2 * page), ==, 0);
}

typedef struct Buffers {
    uint8_t *from[MAX_FROM];
    uint8_t *to;
} Buffers;

static Buffers buffers_new (void)
{
    Buffers self = {.to = map_guarded ()};
    for (unsigned i = 0; i < MAX_FROM; i++) {
        self.from[i] = map_guarded ();
        for (size_t at = 0; at < MAX_SIZE; at++)
            self.from[i][at] = (uint8_t) g_test_rand_int ();
    }
    return self;
}

static void buffers_free (Buffers *self)
{
    for (unsigned i = 0; i < MAX_FROM; i++)
        unmap_guarded (self->from[i]);
    unmap_guarded (self->to);
}

/* One sum, with everything as far at the beginning or at the end of its pages as it goes. */
static void check_sum (Buffers *self, EcfsXorKernel kernel, size_t n_from, size_t n_columns, size_t step, size_t shift,
                       bool at_end)
{
    size_t page = (size_t) sysconf (_SC_PAGESIZE);
    size_t inner = (MAX_SIZE + page - 1) / page * page, size = (n_columns - 1) * step + ECFS_XOR_COLUMN;
    size_t offset = at_end ? inner - size - shift : shift;
    const uint8_t *from[MAX_FROM];
    uint8_t expected[MAX_SIZE];
    for (size_t i = 0; i < n_from; i++)
        from[i] = self->from[i] + offset;
    memset (self->to, 0x5a, inner);
    memset (expected, 0x5a, sizeof expected);
    for (size_t column = 0; column < n_columns; column++)
        for (size_t at = column * step; at < column * step + ECFS_XOR_COLUMN; at++) {
            expected[at] = 0;
            for (size_t i = 0; i < n_from; i++)
                expected[at] ^= from[i][at];
        }
    kernel (self->to + offset, from, n_from, n_columns, step);
    g_assert_true (memcmp (self->to + offset, expected, size) == 0);
    for (size_t at = 0; at < inner; at++)
        if (at < offset || at >= offset + size)
            g_assert_cmphex (self->to[at], ==, 0x5a);
}

static void test_level (const void *data)
{
    static const size_t froms[] = {1, 2, 3, 4, 5, 8, 17, MAX_FROM}, columns[] = {1, 2, 3, 4, 5, 7, 8, 9, 31};
    static const size_t steps[] = {64, 128, 320}, shifts[] = {0, 1, 8, 33};
    EcfsXorLevel levels[ECFS_XOR_MAX_LEVELS];
    (void) ecfs_xor_levels (levels);
    EcfsXorKernel kernel = levels[GPOINTER_TO_UINT (data)].run;
    Buffers buffers = buffers_new ();
    for (size_t f = 0; f < G_N_ELEMENTS (froms); f++)
        for (size_t c = 0; c < G_N_ELEMENTS (columns); c++)
            for (size_t i = 0; i < G_N_ELEMENTS (steps) * G_N_ELEMENTS (shifts) * 2; i++)
                check_sum (&buffers, kernel, froms[f], columns[c], steps[i / 2 % G_N_ELEMENTS (steps)],
                           shifts[i / 2 / G_N_ELEMENTS (steps)], i % 2);
    buffers_free (&buffers);
}

/* The sum may replace one of the packets. */
static void test_in_place (void)
{
    EcfsXorLevel levels[ECFS_XOR_MAX_LEVELS];
    size_t n_levels = ecfs_xor_levels (levels);
    Buffers buffers = buffers_new ();
    for (size_t level = 0; level < n_levels; level++) {
        uint8_t expected[MAX_SIZE];
        for (size_t at = 0; at < MAX_SIZE; at++)
            expected[at] = buffers.from[0][at] ^ buffers.from[1][at] ^ buffers.from[2][at];
        const uint8_t *from[] = {buffers.from[0], buffers.from[1], buffers.from[2]};
        levels[level].run (buffers.from[1], from, 3, MAX_SIZE / 64, 64);
        g_assert_cmpmem (buffers.from[1], MAX_SIZE, expected, MAX_SIZE);
    }
    buffers_free (&buffers);
}

/* Programs: 150 terms in one step, scratch that later steps read, and steps for packets that nobody wants. */
static void test_program (const void *data)
{
    unsigned parts = GPOINTER_TO_UINT (data), n = 200;
    size_t granule = parts * 64u, packet_bytes = 37 * granule;
    g_autoptr (EcfsProgram) program = ecfs_program_new (n, parts);
    g_autofree uint8_t *bytes = g_malloc (n * packet_bytes);
    uint8_t *packets[256] = {0};
    for (size_t at = 0; at < n * packet_bytes; at++)
        bytes[at] = (uint8_t) g_test_rand_int ();
    for (unsigned i = 0; i < n; i++)
        packets[i] = bytes + i * packet_bytes;
    EcfsUnit sum = ecfs_program_scratch (program);
    ecfs_program_begin (program, sum);
    for (uint16_t i = 0; i < 150; i++)
        ecfs_program_add (program, (EcfsUnit){i, (uint16_t) (i % parts)});
    for (uint16_t to = 197; to < 199; to++) {
        ecfs_program_begin (program, (EcfsUnit){to, 0});
        ecfs_program_add (program, sum);
        ecfs_program_add (program, (EcfsUnit){150, (uint16_t) (parts - 1)});
    }
    bool sources[256] = {false};
    ecfs_program_sources (program, sources);
    for (unsigned i = 0; i < n; i++)
        g_assert_cmpint (sources[i], ==, i <= 150);
    g_assert_cmpuint (ecfs_program_n_terms (program), ==, 154);
    g_autofree uint8_t *before = g_memdup2 (bytes, n * packet_bytes);
    packets[198] = NULL;
    ecfs_program_run (program, packets, packet_bytes);
    for (size_t at = 0; at < packet_bytes; at++) {
        uint8_t expected = at % granule < 64 ? 0 : before[197 * packet_bytes + at];
        for (unsigned i = 0; i <= 150 && at % granule < 64; i++)
            expected ^= before[i * packet_bytes + at + (i == 150 ? parts - 1 : i % parts) * 64];
        g_assert_cmphex (bytes[197 * packet_bytes + at], ==, expected);
    }
    memcpy (bytes + 197 * packet_bytes, before + 197 * packet_bytes, packet_bytes);
    g_assert_true (memcmp (bytes, before, n * packet_bytes) == 0);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    EcfsXorLevel levels[ECFS_XOR_MAX_LEVELS];
    size_t n_levels = ecfs_xor_levels (levels);
    for (size_t i = 0; i < n_levels; i++) {
        g_autofree char *path =
            g_strdup_printf ("/xor/%s-sums-what-it-should-and-touches-nothing-else", levels[i].name);
        g_test_add_data_func (path, GUINT_TO_POINTER ((guint) i), test_level);
    }
    g_test_add_func ("/xor/a-sum-may-replace-what-it-is-of", test_in_place);
    g_test_add_data_func ("/xor/programs-run-on-whole-packets", GUINT_TO_POINTER (1), test_program);
    g_test_add_data_func ("/xor/programs-run-on-parts-of-packets", GUINT_TO_POINTER (4), test_program);
    return g_test_run ();
}
