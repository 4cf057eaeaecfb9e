/* What `ecfs prune` goes by: when endpoints got what they have, and how much was lost within a day. */
#include "verbs/prune_priv.h"

#define HOUR_NS (INT64_C (3600) * ECFS_PRUNE_NS_PER_S)
#define NOW_S   INT64_C (1700000000)

/* Losses */

static void add (GArray *samples, int64_t hours, uint64_t n_files, uint64_t lost_files, uint64_t lost_bytes)
{
    const EcfsPruneSample sample = {.time_ns = 1000 * HOUR_NS + hours * HOUR_NS,
                                    .told_ns = 2000 * HOUR_NS + hours * HOUR_NS,
                                    .n_files = n_files,
                                    .bytes = n_files * 1000,
                                    .lost_files = lost_files,
                                    .lost_bytes = lost_bytes};
    g_array_append_val (samples, sample);
}

static void test_slow_loss_is_none (void)
{
    g_autoptr (GArray) samples = g_array_new (FALSE, FALSE, sizeof (EcfsPruneSample));
    EcfsPruneLoss loss;
    g_assert_false (ecfs_prune_find_loss (samples, 0, 10, &loss));
    for (uint64_t day = 0; day < 40; day++)
        add (samples, (int64_t) day * 24, 1000, day * 100, day * 100 * 1000);
    g_assert_false (ecfs_prune_find_loss (samples, 0, 10, &loss));
    g_assert_true (ecfs_prune_find_loss (samples, 0, 9, &loss));
}

/* Wherever a day begins. */
static void test_loss_around_midnight_is_one (void)
{
    g_autoptr (GArray) samples = g_array_new (FALSE, FALSE, sizeof (EcfsPruneSample));
    EcfsPruneLoss loss;
    add (samples, 0, 1000, 0, 0);
    add (samples, 40, 1000, 0, 0);
    add (samples, 47, 940, 60, 0);
    add (samples, 49, 880, 120, 0);
    add (samples, 200, 880, 120, 0);
    g_assert_true (ecfs_prune_find_loss (samples, 0, 10, &loss));
    g_assert_cmpuint (loss.n_files, ==, 120);
    g_assert_cmpuint (loss.of_files, ==, 1000);
    g_assert_cmpint (loss.from_ns, ==, 2040 * HOUR_NS);
    g_assert_cmpint (loss.last_ns, ==, 1049 * HOUR_NS);
    /* Accepted up to its last moment, it is none; a moment earlier, what came then counts alone. */
    g_assert_false (ecfs_prune_find_loss (samples, loss.last_ns, 10, &loss));
    g_assert_false (ecfs_prune_find_loss (samples, 1048 * HOUR_NS, 10, &loss));
    g_assert_true (ecfs_prune_find_loss (samples, 1048 * HOUR_NS, 5, &loss));
}

static void test_bytes_count_as_files_do (void)
{
    g_autoptr (GArray) samples = g_array_new (FALSE, FALSE, sizeof (EcfsPruneSample));
    EcfsPruneLoss loss;
    add (samples, 0, 1000, 0, 0);
    add (samples, 1, 1000, 1, 500000);
    g_assert_true (ecfs_prune_find_loss (samples, 0, 10, &loss));
    g_assert_cmpuint (loss.bytes, ==, 500000);
    g_assert_cmpuint (loss.of_bytes, ==, 1000000);
}

/* Times */

static void store (EcfsPruneTimes *times, size_t position, uint64_t first, uint64_t last, int64_t mtime_s)
{
    const EcfsPruneFile file = {.file = {.kind = ECFS_JOURNAL_SEGMENT, .epoch = 1, .first = first, .last = last},
                                .position = position,
                                .mtime_s = mtime_s};
    g_array_append_val (times->files, file);
}

static EcfsJournalRow *new_row (uint64_t sequence, const char *text)
{
    EcfsJournalRow *row = g_new (EcfsJournalRow, 1);
    *row = (EcfsJournalRow){.sequence = sequence, .time_ns = 4711, .record = g_byte_array_new ()};
    g_byte_array_append (row->record, (const uint8_t *) text, (guint) strlen (text));
    return row;
}

/* What files have, by their sizes. */
enum { TRUE_FILE, GARBAGE, OTHER_RECORDS };

static GPtrArray *read_records (void *user, const EcfsPruneFile *file)
{
    (void) user;
    GPtrArray *rows = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_journal_row_free);
    for (uint64_t i = file->file.first; i <= file->file.last && file->size != GARBAGE; i++)
        g_ptr_array_add (rows, new_row (i, file->size == TRUE_FILE ? "record" : "another"));
    return rows;
}

static int64_t time_of (EcfsPruneTimes *times, uint64_t sequence)
{
    EcfsJournalRow *row = new_row (sequence, "record");
    int64_t time_ns = ecfs_prune_record_time (times, 1, row);
    ecfs_journal_row_free (row);
    return time_ns;
}

static void assert_time (EcfsPruneTimes *times, uint64_t sequence, int64_t mtime_s)
{
    g_assert_cmpint (time_of (times, sequence), ==, (mtime_s + 1) * ECFS_PRUNE_NS_PER_S);
}

/* Files were added: what was asked is remembered. */
static void look_again (EcfsPruneTimes *times)
{
    times->until = 0;
    times->at = UINT64_MAX;
}

static void test_few_that_lie_make_nothing_old (void)
{
    EcfsPruneTimes times = {.files = g_array_new (FALSE, FALSE, sizeof (EcfsPruneFile)),
                            .n_copies = 3,
                            .now_ns = (NOW_S + 1) * ECFS_PRUNE_NS_PER_S,
                            .read = read_records,
                            .from = 1};
    for (size_t i = 0; i < 6; i++)
        store (&times, i, 1, 10, i < 2 ? 1 : NOW_S - 100 + (int64_t) i);
    assert_time (&times, 5, NOW_S - 98);
    /* Nor a file that was there before what has its records: the last of an endpoint's counts. */
    for (size_t i = 0; i < 6; i++) {
        store (&times, i, 11, 1000, 1);
        store (&times, i, 11, 20, NOW_S - 50);
    }
    assert_time (&times, 11, NOW_S - 50);
    assert_time (&times, 20, NOW_S - 50);
    assert_time (&times, 21, 1);
    /* Nobody tells, or an endpoint has no times. */
    assert_time (&times, 1001, NOW_S);
    look_again (&times);
    for (size_t i = 0; i < 6; i++)
        store (&times, i, 1001, 1002, 0);
    g_assert_cmpint (time_of (&times, 1002), ==, times.now_ns);
    ecfs_prune_times_clear (&times);
}

static void test_times_of_records (void)
{
    bool is_future;
    g_assert_cmpint (ecfs_prune_later_time (100 * HOUR_NS, 1, &is_future), ==, 100 * HOUR_NS);
    g_assert_false (is_future);
    g_assert_cmpint (ecfs_prune_later_time (100 * HOUR_NS, 101 * HOUR_NS, &is_future), ==, 101 * HOUR_NS);
    g_assert_false (is_future);
    g_assert_cmpint (ecfs_prune_later_time (100 * HOUR_NS, 101 * HOUR_NS + 1, &is_future), ==, 100 * HOUR_NS);
    g_assert_true (is_future);
    g_assert_cmpint (ecfs_prune_later_time (100 * HOUR_NS, INT64_MAX, &is_future), ==, 100 * HOUR_NS);
    g_assert_cmpint (ecfs_prune_later_time (100 * HOUR_NS, INT64_MIN, &is_future), ==, 100 * HOUR_NS);
}

/* A thief has the key, and an account for all time: what he promises there makes nothing old that he does later. */
static void test_names_make_nothing_old (void)
{
    for (uint64_t what = GARBAGE; what <= OTHER_RECORDS; what++) {
        EcfsPruneTimes times = {.files = g_array_new (FALSE, FALSE, sizeof (EcfsPruneFile)),
                                .n_copies = 3,
                                .now_ns = (NOW_S + 1) * ECFS_PRUNE_NS_PER_S,
                                .read = read_records,
                                .from = 1};
        for (size_t i = 0; i < 6; i++) {
            store (&times, i, 1, 9, 1);
            store (&times, i, 10, 1000000, 2);
            g_array_index (times.files, EcfsPruneFile, times.files->len - 1).size = what;
            g_array_index (times.files, EcfsPruneFile, times.files->len - 1).file.last =
                what == GARBAGE ? 1000000 : 100;
        }
        store (&times, 0, 10, 10, NOW_S - 9);
        assert_time (&times, 9, 1);
        assert_time (&times, 10, NOW_S - 9);
        g_assert_cmpint (time_of (&times, 11), ==, times.now_ns); /* whoever has it, it is none of these */
        for (size_t i = 1; i < 6; i++)
            store (&times, i, 10, 12, NOW_S - 5 + (int64_t) i);
        look_again (&times);
        assert_time (&times, 10, NOW_S - 3);
        ecfs_prune_times_clear (&times);
    }
}

static void test_snapshots_that_follow_a_name (void)
{
    EcfsPruneTimes times = {.files = g_array_new (FALSE, FALSE, sizeof (EcfsPruneFile)),
                            .n_copies = 3,
                            .now_ns = (NOW_S + 1) * ECFS_PRUNE_NS_PER_S,
                            .from = 1};
    EcfsPruneFile snapshot = {.file = {.kind = ECFS_JOURNAL_SNAPSHOT, .epoch = 1, .last = 50}};
    for (size_t i = 0; i < 6; i++) {
        snapshot.position = i;
        snapshot.mtime_s = i == 5 ? NOW_S - 4 : 1;
        snapshot.file.is_last = i == 5;
        g_array_append_val (times.files, snapshot);
    }
    g_assert_cmpint (ecfs_prune_snapshot_time (&times, &snapshot.file), ==, (NOW_S - 3) * ECFS_PRUNE_NS_PER_S);
    ecfs_prune_times_clear (&times);
}

/* Few have it, as where the others were away, and that may be a liar alone: what follows it says when it was there. */
static void test_few_that_have_it (void)
{
    EcfsPruneTimes times = {.files = g_array_new (FALSE, FALSE, sizeof (EcfsPruneFile)),
                            .n_copies = 3,
                            .now_ns = (NOW_S + 1) * ECFS_PRUNE_NS_PER_S,
                            .read = read_records,
                            .from = 1};
    store (&times, 0, 1, 10, 1);
    store (&times, 1, 5, 10, 1);
    assert_time (&times, 1, NOW_S);
    look_again (&times);
    for (size_t i = 0; i < 3; i++)
        store (&times, i, 15, 20, NOW_S - 7);
    assert_time (&times, 2, NOW_S - 7);
    assert_time (&times, 7, NOW_S - 7);
    /* Or another machine, which took over. */
    times.n_copies = 2;
    store (&times, 0, 21, 21, 1);
    assert_time (&times, 21, NOW_S);
    for (size_t i = 0; i < 2; i++) {
        const EcfsPruneFile snapshot = {
            .file = {.kind = ECFS_JOURNAL_SNAPSHOT, .epoch = 2, .last = 21, .is_last = true},
            .position = i,
            .mtime_s = NOW_S - 3};
        g_array_append_val (times.files, snapshot);
    }
    look_again (&times);
    assert_time (&times, 21, NOW_S - 3);
    ecfs_prune_times_clear (&times);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/prune/slow-loss-is-none", test_slow_loss_is_none);
    g_test_add_func ("/prune/loss-around-midnight-is-one", test_loss_around_midnight_is_one);
    g_test_add_func ("/prune/bytes-count-as-files-do", test_bytes_count_as_files_do);
    g_test_add_func ("/prune/few-that-lie-make-nothing-old", test_few_that_lie_make_nothing_old);
    g_test_add_func ("/prune/what-records-tell-of-themselves", test_times_of_records);
    g_test_add_func ("/prune/names-make-nothing-old", test_names_make_nothing_old);
    g_test_add_func ("/prune/snapshots-that-follow-a-name", test_snapshots_that_follow_a_name);
    g_test_add_func ("/prune/few-that-have-it", test_few_that_have_it);
    return g_test_run ();
}
