/* Reading objects: the right bytes whatever is missing, damaged, slow or stalled, and no more of them than it takes. */
#include "program/program.h"
#include "store.h"
#include "util/lock.h"

#include <stdio.h>
#include <string.h>

#define KIB    ((uint64_t) 1024)
#define MIB    (1024 * KIB)
#define MEMORY (256 * MIB)

typedef struct Fixture {
    Store store;
    Object object;
    EcfsReader *reader;
} Fixture;

static void begin_with (Fixture *self, const char *scheme, const char *code, uint64_t size, uint32_t segment_bytes,
                        uint64_t memory)
{
    store_init (&self->store, scheme, code, 0, memory);
    object_init (&self->object, &self->store, size, segment_bytes);
    g_assert_cmpint (object_write (&self->object, NULL), ==, 0);
    g_assert_cmpuint (object_n_stored (&self->object), ==, self->store.n);
    self->reader = object_reader (&self->object);
}

static void begin (Fixture *self, const char *scheme, const char *code, uint64_t size, uint32_t segment_bytes)
{
    begin_with (self, scheme, code, size, segment_bytes, MEMORY);
}

static void end (Fixture *self)
{
    ecfs_reader_close (self->reader);
    object_clear (&self->object);
    store_clear (&self->store);
}

static void reopen (Fixture *self)
{
    ecfs_reader_close (self->reader);
    self->reader = object_reader (&self->object);
}

static int read_at (Fixture *self, uint64_t offset, size_t size)
{
    return object_read (&self->object, self->reader, offset, size, NULL);
}

static uint64_t random_below (uint64_t n)
{
    return ((uint64_t) (guint32) g_test_rand_int () << 32 | (guint32) g_test_rand_int ()) % n;
}

static void test_random (gconstpointer code)
{
    Fixture self;
    begin (&self, "file", code, 5 * MIB + 4321, 512 * KIB);
    uint64_t size = self.object.size;
    for (unsigned i = 0; i < 300; i++) {
        uint64_t offset = random_below (size);
        uint64_t length = random_below (MIN (size - offset, i % 3 == 0 ? 2 * MIB : 70000) + 1);
        g_assert_cmpint (read_at (&self, offset, length), ==, 0);
    }
    g_assert_cmpint (read_at (&self, size - 1, 1), ==, 0);
    g_assert_cmpint (read_at (&self, 0, 0), ==, 0);
    end (&self);
}

/* A stripe that is late on a busy machine is read around: three halves of the content at most, and never all twice. */
static void test_sequential (gconstpointer step)
{
    Fixture self;
    begin (&self, "file", "rs:4+2", 20 * MIB + 1, 1 * MIB);
    uint64_t before = store_bytes_read (&self.store);
    for (uint64_t at = 0; at < self.object.size; at += GPOINTER_TO_SIZE (step))
        g_assert_cmpint (read_at (&self, at, MIN (GPOINTER_TO_SIZE (step), self.object.size - at)), ==, 0);
    g_assert_cmpuint (store_bytes_read (&self.store) - before, <, self.object.size * 7 / 4);
    end (&self);
}

/* More is read meanwhile than there is memory for, and what the reader has done with goes to others. */
static void test_borrowed (void)
{
    Fixture self;
    begin_with (&self, "file", "rs:4+2", 20 * MIB + 1, 1 * MIB, 6 * MIB);
    Reading *first = reading_borrow (&self.object, self.reader, 0, 128 * KIB);
    Reading *random = reading_borrow (&self.object, self.reader, 9 * MIB + 5, 70000);
    for (uint64_t at = 128 * KIB; at < self.object.size; at += MIB)
        g_assert_cmpint (read_at (&self, at, MIN (MIB, self.object.size - at)), ==, 0);
    ecfs_reader_close (g_steal_pointer (&self.reader));
    g_assert_cmpint (reading_finish (random, NULL), ==, 0);
    g_assert_cmpint (reading_finish (first, NULL), ==, 0);
    end (&self);
}

static void test_borrowed_in_vain (void)
{
    Fixture self;
    begin (&self, "file", "rs:4+2", 2 * MIB, 1 * MIB);
    for (unsigned i = 0; i < 3; i++) {
        g_autofree char *path = object_stripe_path (&self.object, i);
        g_assert_cmpint (remove (path), ==, 0);
    }
    g_assert_cmpint (reading_finish (reading_borrow (&self.object, self.reader, 0, MIB), NULL), ==, EIO);
    end (&self);
}

/* What a cold random read costs: the blocks that it touches, from the stripe that has them, or where that is late from
 * all others; a segment is 256 blocks. */
static void test_random_is_cheap (void)
{
    Fixture self;
    begin (&self, "file", "rs:4+2", 32 * MIB, 2 * MIB);
    const uint64_t block = self.object.layout.block_bytes + ECFS_TAG_CHECKSUM_BYTES;
    const uint64_t packet = self.object.layout.segment_bytes / 4;
    for (unsigned i = 0; i < 50; i++) {
        reopen (&self);
        uint64_t offset = random_below (self.object.size - 64 * KIB);
        uint64_t n_packets = (offset + 64 * KIB - 1) / packet - offset / packet + 1;
        uint64_t before = store_bytes_read (&self.store);
        g_assert_cmpint (read_at (&self, offset, 64 * KIB), ==, 0);
        g_assert_cmpuint (store_bytes_read (&self.store) - before, <=, 6 * 9 * block * n_packets);
    }
    end (&self);
}

/* The kernel may ask for it in two parts: the second is no reason to fetch all around it, 256 blocks a segment. */
static void test_random_in_parts_is_cheap (void)
{
    Fixture self;
    begin (&self, "file", "rs:4+2", 32 * MIB, 2 * MIB);
    uint64_t before = store_bytes_read (&self.store);
    for (unsigned i = 0; i < 30; i++) {
        uint64_t offset = (i * 7 % 30 + 1) * MIB;
        g_assert_cmpint (read_at (&self, offset, 32 * KIB), ==, 0);
        g_assert_cmpint (read_at (&self, offset + 32 * KIB, 32 * KIB), ==, 0);
    }
    g_assert_cmpuint (store_bytes_read (&self.store) - before, <=,
                      UINT64_C (30) * 2 * 6 * 4 * (self.object.layout.block_bytes + ECFS_TAG_CHECKSUM_BYTES));
    end (&self);
}

static unsigned n_reads (const Fixture *self)
{
    unsigned n = 0;
    for (unsigned i = 0; i < self->store.n; i++)
        n += atomic_load (&self->store.faults[i]->n_reads);
    return n;
}

/* Reading on from the middle soon asks for whole segments: of 8 there are four stripes each. */
static void test_run_from_the_middle (void)
{
    Fixture self;
    begin (&self, "faulty", "rs:4+2", 32 * MIB, 2 * MIB);
    for (uint64_t at = 9 * MIB; at < 25 * MIB; at += 64 * KIB)
        g_assert_cmpint (read_at (&self, at, 64 * KIB), ==, 0);
    g_assert_cmpuint (n_reads (&self), <, 16 * MIB / (64 * KIB));
    end (&self);
}

/* Removes stripes, or puts them back from copies. A rename would leave them to whoever has them open. */
static void hide (Fixture *self, unsigned mask, bool hidden)
{
    for (unsigned i = 0; i < self->store.n; i++) {
        g_autofree char *path = object_stripe_path (&self->object, i);
        g_autofree char *copy = g_strconcat (path, "~", NULL);
        g_autofree char *bytes = NULL;
        size_t size;
        if ((mask >> i & 1) == 0)
            continue;
        g_assert_true (g_file_get_contents (hidden ? path : copy, &bytes, &size, NULL));
        g_assert_true (g_file_set_contents (hidden ? copy : path, bytes, (gssize) size, NULL));
        g_assert_cmpint (remove (hidden ? path : copy), ==, 0);
    }
}

static void test_missing (void)
{
    Fixture self;
    begin (&self, "file", "rs:4+2", 3 * 256 * KIB + 7, 256 * KIB);
    for (unsigned mask = 0; mask < 64; mask++) {
        int n_missing = __builtin_popcount (mask);
        g_autofree char *text = NULL;
        if (n_missing > 3)
            continue;
        hide (&self, mask, true);
        reopen (&self);
        if (n_missing <= 2) {
            g_assert_cmpint (read_at (&self, 0, self.object.size), ==, 0);
            g_assert_cmpint (read_at (&self, 70000, 1000), ==, 0);
        } else {
            g_assert_cmpint (object_read (&self.object, self.reader, 0, self.object.size, &text), ==, EIO);
            for (unsigned i = 0; i < 6; i++) {
                g_autofree char *name = g_strdup_printf ("endpoint e%u:", i);
                g_assert_true ((strstr (text, name) != NULL) == (mask >> i & 1));
            }
        }
        hide (&self, mask, false);
    }
    end (&self);
}

/* Any set of stripes that determines the content gives it; any other gives an error and no byte. */
static void test_lost_sets (gconstpointer code)
{
    Fixture self;
    begin (&self, "file", code, 2 * 256 * KIB + 7, 256 * KIB);
    unsigned n = self.store.n, n_read = 0, n_refused = 0;
    for (unsigned round = 0; round < 40; round++) {
        unsigned mask = 0, n_lost = 1 + round % (n - ecfs_codec_k (self.store.codec) + 1);
        bool present[ECFS_CODEC_MAX_N] = {false};
        while ((unsigned) __builtin_popcount (mask) < n_lost)
            mask |= 1u << random_below (n);
        for (unsigned i = 0; i < n; i++)
            present[i] = (mask >> i & 1) == 0;
        bool decodable = ecfs_codec_decodable (self.store.codec, present);
        hide (&self, mask, true);
        reopen (&self);
        g_assert_cmpint (read_at (&self, 0, self.object.size), ==, decodable ? 0 : EIO);
        n_read += decodable;
        n_refused += !decodable;
        hide (&self, mask, false);
    }
    g_assert_cmpuint (n_read, >, 0);
    g_assert_cmpuint (n_refused, >, 0);
    end (&self);
}

/* What a cold read of a part of a lost stripe costs, in check blocks read: the least of some, as more are when one is
 * late. */
static uint64_t blocks_for_lost_part (const char *code)
{
    Fixture self;
    uint64_t least = UINT64_MAX;
    begin (&self, "file", code, 8 * MIB, 2 * MIB);
    hide (&self, 1 << 2, true);
    const EcfsLayout *layout = &self.object.layout;
    for (unsigned i = 0; i < 20; i++) {
        reopen (&self);
        uint64_t before = store_bytes_read (&self.store);
        g_assert_cmpint (read_at (&self, 2 * (uint64_t) layout->segment_bytes / 8 + 10, 8000), ==, 0);
        least = MIN (least, (store_bytes_read (&self.store) - before + ECFS_TAG_CHECKSUM_BYTES) /
                                (layout->block_bytes + ECFS_TAG_CHECKSUM_BYTES));
    }
    end (&self);
    return least;
}

static void test_lost_part (void)
{
    g_assert_cmpuint (blocks_for_lost_part ("rs:8+8"), ==, 8);
    g_assert_cmpuint (blocks_for_lost_part ("basic:8+8"), ==, 4);
    g_assert_cmpuint (blocks_for_lost_part ("ldpc:8+6"), <=, 4);
}

/* A stripe's own header is all that its code takes: no table, no catalog. */
static void test_described (gconstpointer code)
{
    Fixture self;
    begin (&self, "file", code, 300 * KIB, 256 * KIB);
    g_autofree char *path = object_stripe_path (&self.object, self.store.n - 1);
    g_autofree char *bytes = NULL;
    size_t size;
    EcfsStripeHeader header;
    g_autoptr (GError) error = NULL;
    g_assert_true (g_file_get_contents (path, &bytes, &size, NULL));
    g_assert_true (ecfs_stripe_header_parse ((const uint8_t *) bytes, size, &header, NULL));
    g_autoptr (EcfsCodec) codec = ecfs_stripe_codec (&header, &error);
    g_assert_no_error (error);
    g_assert_cmpstr (ecfs_codec_identity (codec), ==, ecfs_codec_identity (self.store.codec));
    g_assert_cmpuint (ecfs_codec_tolerance (codec), ==, ecfs_codec_tolerance (self.store.codec));
    end (&self);
}

/* A part of a segment whose own stripe is readable needs no other. */
static void test_part_of_undecodable (void)
{
    Fixture self;
    begin (&self, "file", "rs:4+2", 4 * MIB, 4 * MIB);
    hide (&self, 0x3d, true);
    reopen (&self);
    g_assert_cmpint (read_at (&self, MIB + 5, 10000), ==, 0);
    g_assert_cmpint (read_at (&self, 5, 10000), ==, EIO);
    hide (&self, 0x3d, false);
    reopen (&self);
    g_assert_cmpint (read_at (&self, 5, 10000), ==, 0);
    end (&self);
}

static void flip (const Fixture *self, unsigned index, uint64_t at, uint8_t with)
{
    g_autofree char *path = object_stripe_path (&self->object, index);
    FILE *file = fopen (path, "r+");
    g_assert_nonnull (file);
    g_assert_cmpint (fseek (file, (long) at, SEEK_SET), ==, 0);
    int byte = fgetc (file);
    g_assert_cmpint (fseek (file, (long) at, SEEK_SET), ==, 0);
    g_assert_cmpint (fputc (byte ^ with, file), !=, EOF);
    g_assert_cmpint (fclose (file), ==, 0);
}

static void test_flips (void)
{
    Fixture self;
    begin (&self, "file", "rs:4+2", 700 * KIB + 11, 256 * KIB);
    uint64_t header = self.object.layout.header_bytes;
    uint64_t area = ecfs_layout_area_bytes (&self.object.layout);
    for (unsigned i = 0; i < 200; i++) {
        unsigned a = (unsigned) random_below (6), b = (a + 1 + (unsigned) random_below (5)) % 6;
        uint64_t at_a = header + random_below (area), at_b = header + random_below (area);
        uint8_t with = (uint8_t) (1 << random_below (8));
        flip (&self, a, at_a, with);
        flip (&self, b, at_b, with);
        reopen (&self);
        g_assert_cmpint (read_at (&self, 0, self.object.size), ==, 0);
        uint64_t offset = random_below (self.object.size - 1000);
        g_assert_cmpint (read_at (&self, offset, 1000), ==, 0);
        flip (&self, a, at_a, with);
        flip (&self, b, at_b, with);
    }
    end (&self);
}

/* The same check block damaged in three stripes; a stripe of the right length full of another one's bytes. */
static void test_too_many_flips (void)
{
    Fixture self;
    g_autofree char *text = NULL;
    begin (&self, "file", "rs:4+2", 700 * KIB + 11, 256 * KIB);
    for (unsigned i = 1; i <= 3; i++)
        flip (&self, i, self.object.layout.header_bytes + 100, 0x40);
    g_assert_cmpint (object_read (&self.object, self.reader, 0, self.object.size, &text), ==, EIO);
    g_assert_nonnull (strstr (text, "endpoint e1: "));
    g_assert_nonnull (strstr (text, "endpoint e3: "));
    g_assert_cmpint (read_at (&self, 300 * KIB, 100), ==, 0);
    end (&self);
}

static void test_exchanged (void)
{
    Fixture self;
    begin (&self, "file", "rs:4+2", 700 * KIB + 11, 256 * KIB);
    g_autofree char *one = object_stripe_path (&self.object, 0);
    g_autofree char *two = object_stripe_path (&self.object, 3);
    g_autofree char *aside = g_strconcat (one, "~", NULL);
    g_assert_cmpint (rename (one, aside) + rename (two, one) + rename (aside, two), ==, 0);
    g_assert_cmpint (read_at (&self, 0, self.object.size), ==, 0);
    end (&self);
}

static void test_truncated (void)
{
    Fixture self;
    begin (&self, "file", "rs:4+2", 700 * KIB + 11, 256 * KIB);
    g_autofree char *path = object_stripe_path (&self.object, 2);
    g_autofree char *bytes = NULL;
    size_t size;
    g_assert_true (g_file_get_contents (path, &bytes, &size, NULL));
    for (size_t keep = 0; keep < size; keep += size / 7) {
        g_assert_true (g_file_set_contents (path, bytes, (gssize) keep, NULL));
        reopen (&self);
        g_assert_cmpint (read_at (&self, 0, self.object.size), ==, 0);
    }
    end (&self);
}

typedef struct Concurrent {
    Fixture *fixture;
    pthread_t thread;
    unsigned seed;
    unsigned n_rounds;
} Concurrent;

static void *run_concurrent (void *data)
{
    Concurrent *self = data;
    Object *object = &self->fixture->object;
    GRand *rand = g_rand_new_with_seed (self->seed);
    for (unsigned i = 0; i < self->n_rounds; i++) {
        Reading *readings[4];
        for (unsigned r = 0; r < 4; r++) {
            uint64_t offset = g_rand_int (rand) % object->size;
            uint64_t most = g_rand_int (rand) % (r == 0 ? MIB : 100 * KIB);
            uint64_t size = MIN (object->size - offset, most);
            readings[r] = reading_begin (object, self->fixture->reader, offset, size);
        }
        for (unsigned r = 0; r < 4; r++)
            g_assert_cmpint (reading_finish (readings[r], NULL), ==, 0);
    }
    g_rand_free (rand);
    return NULL;
}

static void test_concurrent (gconstpointer memory)
{
    Fixture self;
    begin_with (&self, "file", "rs:4+2", 10 * MIB, 512 * KIB, GPOINTER_TO_SIZE (memory));
    hide (&self, 1 << 1, true);
    Concurrent threads[6];
    for (unsigned i = 0; i < G_N_ELEMENTS (threads); i++) {
        threads[i] = (Concurrent){.fixture = &self,
                                  .seed = (unsigned) g_test_rand_int (),
                                  .n_rounds = GPOINTER_TO_SIZE (memory) == MEMORY ? 60 : 4};
        g_assert_cmpint (pthread_create (&threads[i].thread, NULL, run_concurrent, &threads[i]), ==, 0);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS (threads); i++)
        pthread_join (threads[i].thread, NULL);
    end (&self);
}

/* Two of six stop in the middle of a sequential read: the rest decodes, and does not wait for them, which would be for
 * ever. Their late bytes change nothing. */
static void test_stall (gconstpointer deaf)
{
    Fixture self;
    begin (&self, "faulty", "rs:4+2", 24 * MIB, 1 * MIB);
    for (unsigned i = 0; i < 6; i++)
        atomic_store (&self.store.faults[i]->pace_us, 200);
    for (uint64_t at = 0; at < self.object.size; at += MIB / 2) {
        if (at == 8 * MIB)
            for (unsigned i = 0; i < 2; i++) {
                atomic_store (&self.store.faults[i]->read_deaf, GPOINTER_TO_INT (deaf) != 0);
                atomic_store (&self.store.faults[i]->read_stall_at, 40000);
            }
        if (at == 20 * MIB)
            for (unsigned i = 0; i < 2; i++)
                atomic_store (&self.store.faults[i]->read_stall_at, FAULTS_NEVER);
        g_assert_cmpint (read_at (&self, at, MIB / 2), ==, 0);
    }
    end (&self);
}

static void test_stalled_from_the_start (void)
{
    Fixture self;
    begin (&self, "faulty", "rs:4+2", 8 * MIB, 1 * MIB);
    for (unsigned i = 2; i < 4; i++)
        atomic_store (&self.store.faults[i]->read_stall_at, 0);
    g_assert_cmpint (read_at (&self, 0, self.object.size), ==, 0);
    end (&self);
}

/* Segments that were read around an endpoint, as the log says. */
static uint64_t n_erased (const Fixture *self, const char *endpoint, EcfsErasedWhy why)
{
    g_autoptr (GPtrArray) erasures = ecfs_read_log_erasures (self->store.log);
    uint64_t n = 0;
    for (guint i = 0; i < erasures->len; i++) {
        const EcfsErasure *erasure = g_ptr_array_index (erasures, i);
        n += g_str_equal (erasure->endpoint, endpoint) && erasure->why == why ? erasure->n_segments : 0;
    }
    return n;
}

static void test_explained (void)
{
    Fixture self;
    begin (&self, "faulty", "rs:4+2", 8 * MIB, 1 * MIB);
    g_assert_cmpint (read_at (&self, 0, self.object.size), ==, 0);
    EcfsReadCounts counts;
    ecfs_read_log_counts (self.store.log, &counts);
    g_assert_cmpuint (counts.segments, ==, 8);
    g_assert_cmpuint (counts.received_bytes, >=, self.object.size);
    g_assert_cmpuint (counts.received_bytes, <=, self.object.size * 3 / 2 + MIB); /* at most all six */
    reopen (&self);
    atomic_store (&self.store.faults[1]->read_code, EBADMSG);
    atomic_store (&self.store.faults[2]->read_stall_at, 40000);
    unsigned n_rounds = 1; /* on a busy machine others may seem sooner than these two, for once */
    int64_t deadline_us = ecfs_now_us () + STORE_DEADLINE_US / 2;
    g_assert_cmpint (read_at (&self, 0, self.object.size), ==, 0);
    while (n_erased (&self, "e1", ECFS_ERASED_DAMAGED) == 0 ||
           n_erased (&self, "e2", ECFS_ERASED_STALLED) + n_erased (&self, "e2", ECFS_ERASED_LATE) == 0) {
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        reopen (&self);
        g_assert_cmpint (read_at (&self, 0, self.object.size), ==, 0);
        n_rounds++;
    }
    g_assert_cmpuint (n_erased (&self, "e2", ECFS_ERASED_DAMAGED), ==, 0);
    EcfsReadCounts after;
    ecfs_read_log_counts (self.store.log, &after);
    g_assert_cmpuint (after.segments, ==, 8 + 8 * n_rounds);
    g_assert_cmpuint (after.degraded - counts.degraded, >, 0);
    g_assert_cmpuint (after.decoded - counts.decoded, >, 0);
    g_assert_cmpuint (after.cancelled - counts.cancelled, >, 0);
    end (&self);
}

/* More stall than can be done without: the read waits, and is served when they go on. */
static void test_late_is_not_lost (void)
{
    Fixture self;
    begin (&self, "faulty", "rs:4+2", 4 * MIB, 1 * MIB);
    for (unsigned i = 0; i < 4; i++)
        atomic_store (&self.store.faults[i]->read_stall_at, 100000);
    Reading *reading = reading_begin (&self.object, self.reader, 0, self.object.size);
    int64_t deadline_us = ecfs_now_us () + 60 * G_USEC_PER_SEC;
    while (atomic_load (&self.store.faults[4]->n_reads) == 0) {
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_usleep (1000);
    }
    for (unsigned i = 0; i < 4; i++)
        atomic_store (&self.store.faults[i]->read_stall_at, FAULTS_NEVER);
    g_assert_cmpint (reading_finish (reading, NULL), ==, 0);
    end (&self);
}

/* Passing errors are tried again, and not for ever. */
static void test_all_fail (void)
{
    Fixture self;
    g_autofree char *text = NULL;
    begin (&self, "faulty", "rs:4+2", 4 * MIB, 1 * MIB);
    for (unsigned i = 0; i < 3; i++) {
        atomic_store (&self.store.faults[i]->read_fail_after, 50000);
        atomic_store (&self.store.faults[i]->read_code, ETIMEDOUT);
    }
    g_assert_cmpint (object_read (&self.object, self.reader, 0, self.object.size, &text), ==, EIO);
    for (unsigned i = 0; i < 3; i++) {
        g_autofree char *name = g_strdup_printf ("endpoint e%u: ", i);
        g_assert_nonnull (strstr (text, name));
    }
    for (unsigned i = 0; i < 3; i++)
        atomic_store (&self.store.faults[i]->read_code, 0);
    g_assert_cmpint (read_at (&self, 0, self.object.size), ==, 0);
    end (&self);
}

/* Closing with reads under way: they are answered, what was read ahead is given up, and nothing is asked anew. */
static void test_close (void)
{
    Fixture self;
    begin (&self, "faulty", "rs:4+2", 24 * MIB, 512 * KIB);
    for (uint64_t at = 0; at < 2 * MIB; at += MIB / 2)
        g_assert_cmpint (read_at (&self, at, MIB / 2), ==, 0);
    for (unsigned i = 0; i < 6; i++)
        atomic_store (&self.store.faults[i]->read_stall_at, 10000);
    Reading *reading = reading_begin (&self.object, self.reader, 16 * MIB, 400000);
    g_assert_cmpint (read_at (&self, 2 * MIB - 100000, 50000), ==, 0);
    for (unsigned i = 0; i < 6; i++)
        atomic_store (&self.store.faults[i]->read_stall_at, FAULTS_NEVER);
    ecfs_reader_close (g_steal_pointer (&self.reader));
    g_assert_cmpint (reading_finish (reading, NULL), ==, 0);
    end (&self);
}

/* Only what was read ahead is under way, and no endpoint answers: closing ends it, endpoints can be stopped. */
static void test_close_with_readahead (void)
{
    Fixture self;
    begin (&self, "faulty", "rs:4+2", 24 * MIB, 512 * KIB);
    g_assert_cmpint (read_at (&self, 0, MIB / 2), ==, 0);
    for (unsigned i = 0; i < 6; i++)
        atomic_store (&self.store.faults[i]->pace_us, 100000);
    g_assert_cmpint (read_at (&self, MIB / 2, MIB / 2), ==, 0);
    unsigned before = n_reads (&self);
    for (unsigned i = 0; i < 6; i++)
        atomic_store (&self.store.faults[i]->read_stall_at, 0);
    ecfs_reader_close (g_steal_pointer (&self.reader));
    for (unsigned i = 0; i < self.store.n_endpoints; i++)
        ecfs_endpoint_stop (self.store.endpoints[i]);
    g_assert_cmpuint (n_reads (&self), <=, before + 6 * 32); /* those that were queued already */
    end (&self);
}

/* Who reads all calls every endpoint with the first read, so that those ahead are connected when their turn comes. */
static void test_expects_all (void)
{
    Fixture self;
    begin (&self, "faulty", "rs:4+2", 24 * MIB, 512 * KIB);
    for (unsigned i = 0; i < 6; i++)
        atomic_store (&self.store.faults[i]->read_stall_at, 0);
    ecfs_reader_expect_all (self.reader);
    unsigned n_called = 0;
    Reading *reading = reading_begin (&self.object, self.reader, 0, MIB / 2);
    for (unsigned i = 0; i < 6; i++) {
        EcfsEndpointHealth health;
        ecfs_endpoint_health (self.store.endpoints[i], &health);
        n_called += health.queued_bytes > 0;
        ecfs_endpoint_health_clear (&health);
    }
    g_assert_cmpuint (n_called, ==, 6); /* one segment takes four */
    for (unsigned i = 0; i < 6; i++)
        atomic_store (&self.store.faults[i]->read_stall_at, FAULTS_NEVER);
    g_assert_cmpint (reading_finish (reading, NULL), ==, 0);
    end (&self);
}

/* As a player reads: more slowly than what was read ahead is otherwise kept. */
static void test_read_ahead_waits (void)
{
    Fixture self;
    begin (&self, "file", "rs:4+2", 24 * MIB, 512 * KIB);
    uint64_t before = store_bytes_read (&self.store), at = 0;
    for (; at < 8 * MIB; at += 512 * KIB)
        g_assert_cmpint (read_at (&self, at, 512 * KIB), ==, 0);
    for (unsigned i = 0; i < 5; i++, at += 64 * KIB) {
        g_usleep (900000);
        g_assert_cmpint (read_at (&self, at, 64 * KIB), ==, 0);
    }
    for (; at < 24 * MIB; at += 64 * KIB)
        g_assert_cmpint (read_at (&self, at, 64 * KIB), ==, 0);
    g_assert_cmpuint (store_bytes_read (&self.store) - before, <, 24 * MIB * 5 / 4);
    end (&self);
}

static void test_close_null (void)
{
    ecfs_reader_close (NULL);
}

typedef struct Trouble {
    atomic_uint n_told[16];
} Trouble;

static void note_trouble (void *user, const EcfsTrouble *trouble)
{
    Trouble *self = user;
    g_assert_true (trouble->damage);
    g_assert_cmpint (trouble->error->code, ==, trouble->stripe_index == 0 ? ENOENT : EBADMSG);
    g_assert_cmpuint (trouble->instance, !=, 0);
    atomic_fetch_add (&self->n_told[trouble->stripe_index], 1);
}

/* Reads all of the object with a reader of its own, which may tell @trouble until the store ends; returns the stripes
 * whose trouble it told. */
static unsigned read_troubled (Fixture *self, Trouble *trouble)
{
    EcfsReaderStripe stripes[6];
    ecfs_reader_close (self->reader);
    for (unsigned i = 0; i < 6; i++)
        stripes[i] = (EcfsReaderStripe){.endpoint = self->object.targets[i].endpoint,
                                        .instance = self->object.targets[i].instance};
    EcfsReaderParams params = {.transfer = self->store.transfer,
                               .codec = self->store.codec,
                               .layout = self->object.layout,
                               .object = self->object.job.header.object,
                               .stripes = stripes,
                               .trouble = note_trouble,
                               .user = trouble};
    self->reader = ecfs_reader_new (&params);
    g_assert_cmpint (read_at (self, 0, self->object.size), ==, 0);
    unsigned told = 0;
    for (unsigned i = 0; i < 6; i++) {
        g_assert_cmpuint (atomic_load (&trouble->n_told[i]), <=, 1);
        told |= atomic_load (&trouble->n_told[i]) << i;
    }
    return told;
}

/* One that is late on a busy machine may be read around before its damage was seen: then another reader finds it. */
static void test_trouble (void)
{
    Fixture self;
    Trouble troubles[50] = {0};
    unsigned told = 0;
    begin (&self, "file", "rs:4+2", 4 * MIB, 256 * KIB);
    hide (&self, 1 << 0, true);
    flip (&self, 3, self.object.layout.header_bytes + 5000, 1);
    for (unsigned i = 0; i < G_N_ELEMENTS (troubles) && told != (1 << 0 | 1 << 3); i++)
        told |= read_troubled (&self, &troubles[i]);
    g_assert_cmpuint (told, ==, 1 << 0 | 1 << 3);
    end (&self);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* notices are what these tests provoke */
    static const char *const codes[] = {"copies:3", "rs:2+1", "rs:4+2", "rs:8+3", "ldpc:8+6", "basic:8+8"};
    for (size_t i = 0; i < G_N_ELEMENTS (codes); i++) {
        g_autofree char *random = g_strdup_printf ("/reader/%s/random-reads-give-the-content", codes[i]);
        g_autofree char *lost = g_strdup_printf ("/reader/%s/stripes-that-determine-the-content-give-it", codes[i]);
        g_autofree char *described = g_strdup_printf ("/reader/%s/its-stripes-describe-it", codes[i]);
        g_test_add_data_func (random, codes[i], test_random);
        g_test_add_data_func (lost, codes[i], test_lost_sets);
        g_test_add_data_func (described, codes[i], test_described);
    }
    g_test_add_func ("/reader/a-part-of-a-lost-stripe-costs-what-its-code-takes", test_lost_part);
    g_test_add_func ("/reader/random-reads-in-parts-are-cheap", test_random_in_parts_is_cheap);
    g_test_add_func ("/reader/a-run-from-the-middle-asks-for-segments", test_run_from_the_middle);
    g_test_add_data_func ("/reader/sequential-128-kib-read-ahead", GSIZE_TO_POINTER (128 * KIB), test_sequential);
    g_test_add_data_func ("/reader/sequential-odd-steps-read-ahead", GSIZE_TO_POINTER (1000003), test_sequential);
    g_test_add_func ("/reader/what-is-borrowed-stays", test_borrowed);
    g_test_add_func ("/reader/what-cannot-be-had-cannot-be-borrowed", test_borrowed_in_vain);
    g_test_add_func ("/reader/a-random-read-costs-what-it-touches", test_random_is_cheap);
    g_test_add_func ("/reader/any-2-of-6-may-be-missing-and-not-3", test_missing);
    g_test_add_func ("/reader/what-is-there-is-read-from-an-undecodable-object", test_part_of_undecodable);
    g_test_add_func ("/reader/flipped-bits-are-read-around", test_flips);
    g_test_add_func ("/reader/too-many-flipped-bits-are-an-error", test_too_many_flips);
    g_test_add_func ("/reader/exchanged-stripes-are-read-around", test_exchanged);
    g_test_add_func ("/reader/truncated-stripes-are-read-around", test_truncated);
    g_test_add_data_func ("/reader/concurrent-reads", GSIZE_TO_POINTER (MEMORY), test_concurrent);
    g_test_add_data_func ("/reader/concurrent-reads-in-memory-for-one-segment", GSIZE_TO_POINTER (800 * KIB),
                          test_concurrent);
    g_test_add_data_func ("/reader/a-stall-in-the-middle-costs-little", GINT_TO_POINTER (0), test_stall);
    g_test_add_data_func ("/reader/bytes-of-a-stalled-stripe-may-come-late", GINT_TO_POINTER (1), test_stall);
    g_test_add_func ("/reader/stalled-from-the-start-is-read-around", test_stalled_from_the_start);
    g_test_add_func ("/reader/what-is-read-around-is-explained", test_explained);
    g_test_add_func ("/reader/late-is-not-lost", test_late_is_not_lost);
    g_test_add_func ("/reader/passing-errors-are-tried-again-but-not-for-ever", test_all_fail);
    g_test_add_func ("/reader/closing-answers-reads-under-way", test_close);
    g_test_add_func ("/reader/who-reads-all-calls-every-endpoint-at-once", test_expects_all);
    g_test_add_func ("/reader/closing-gives-up-what-was-read-ahead", test_close_with_readahead);
    g_test_add_func ("/reader/what-was-read-ahead-waits-for-a-slow-reader", test_read_ahead_waits);
    g_test_add_func ("/reader/closing-nothing-is-fine", test_close_null);
    g_test_add_func ("/reader/trouble-is-told-once-per-stripe", test_trouble);
    return g_test_run ();
}
