/* Logs and packs: objects that many files share, and how files come into them and out of them. */
#include "fixture.h"

#include "catalog/check.h"

#define HEAD 80 /* of a record before its content */

typedef struct Shared {
    Fixture f;
    EcfsObjectRow *log;
    int64_t intent; /* of the log, as long as it is open */
    uint64_t end;
} Shared;

static EcfsObjectRow *begin_log (Fixture *f, int64_t *ret_intent)
{
    EcfsObjectRow *log = new_object (f, "copies:3", 0, 3);
    log->has_sha256 = false;
    for (guint i = 0; i < log->stripes->len; i++)
        g_array_index (log->stripes, EcfsStripeRow, i).size = 0;
    OK (e, ecfs_catalog_log_begin (f->catalog, log, ret_intent, &e));
    return log;
}

static void set_up (Shared *self, gconstpointer unused)
{
    (void) unused;
    *self = (Shared){.end = 0};
    fixture_init (&self->f);
    fixture_add_endpoints (&self->f);
    self->log = begin_log (&self->f, &self->intent);
}

static void tell_problem (void *user, uint64_t ino, const char *text)
{
    (void) user;
    g_error ("inode %" PRIu64 ": %s", ino, text);
}

static void tear_down (Shared *self, gconstpointer unused)
{
    bool sound;
    (void) unused;
    fixture_close (&self->f);
    fixture_open (&self->f, ECFS_CATALOG_READONLY);
    OK (e, ecfs_catalog_check (self->f.catalog, tell_problem, NULL, &sound, &e));
    g_assert_true (sound);
    fixture_clear (&self->f);
    ecfs_object_row_free (self->log);
}

static void count (void *user)
{
    ++*(unsigned *) user;
}

/* A record of @size bytes of the file in the log. */
static void append (Shared *self, uint64_t ino, uint64_t size)
{
    unsigned n_made = 0;
    EcfsLogged logged = {.log = self->log->uuid,
                         .offset = self->end + HEAD,
                         .end = self->end + (HEAD + size + 1023) / 1024 * 1024,
                         .generation = ecfs_catalog_sequence (self->f.catalog)};
    memset (logged.sha256, (int) (ino % 200 + 1), sizeof logged.sha256);
    EcfsPublish publish = {
        .ino = ino, .logged = &logged, .size = size, .mtime_ns = 4711, .full = true, .made = count, .user = &n_made};
    OK (e, ecfs_catalog_publish (self->f.catalog, &publish, NULL, &e));
    g_assert_cmpuint (n_made, ==, 1);
    self->end = logged.end;
}

static uint64_t make_logged (Shared *self, const char *name, uint64_t size)
{
    uint64_t ino = make_file (&self->f, ECFS_ROOT_INO, name);
    append (self, ino, size);
    return ino;
}

/* The extent that is all of a file's content, and its object. */
static EcfsObjectRow *only_object (Fixture *f, uint64_t ino, EcfsExtent *ret_extent)
{
    uint64_t size;
    g_autoptr (GError) error = NULL;
    g_autoptr (GArray) extents = ecfs_catalog_content (f->catalog, ino, &size, &error);
    g_assert_no_error (error);
    g_assert_cmpuint (extents->len, ==, 1);
    *ret_extent = g_array_index (extents, EcfsExtent, 0);
    EcfsObjectRow *object = ecfs_catalog_object (f->catalog, ret_extent->object, &error);
    g_assert_no_error (error);
    return object;
}

static void assert_is_in (Fixture *f, uint64_t ino, const EcfsObjectRow *object, uint64_t offset)
{
    EcfsExtent extent;
    g_autoptr (EcfsObjectRow) own = only_object (f, ino, &extent);
    g_assert_true (ecfs_uuid_equal (&own->uuid, &object->uuid));
    g_assert_cmpuint (extent.object_offset, ==, offset);
    g_assert_cmpint (own->kind, ==, object->kind);
}

static bool drop_unused (Fixture *f, const EcfsObjectRow *object)
{
    bool gone;
    OK (e, ecfs_catalog_drop_unused (f->catalog, &object->uuid, &gone, &e));
    return gone;
}

static void end_log (Shared *self)
{
    OK (e, ecfs_catalog_log_close (self->f.catalog, &self->log->uuid, &e));
}

static void unlink_file (Fixture *f, const char *name)
{
    EcfsAttr attr;
    OK (e, ecfs_catalog_unlink (f->catalog, ECFS_ROOT_INO, name, &attr, &e));
    if (attr.nlink == 0)
        OK (e, ecfs_catalog_drop (f->catalog, attr.ino, &e));
}

/* Logs */

static void test_log (Shared *self, gconstpointer unused)
{
    (void) unused;
    Fixture *f = &self->f;
    EcfsExtent extent;
    uint64_t first = make_logged (self, "first", 1000), second = make_logged (self, "second", 9000);
    g_autoptr (EcfsObjectRow) log = only_object (f, second, &extent);
    g_assert_cmpint (log->kind, ==, ECFS_OBJECT_LOG);
    g_assert_cmpuint (log->size, ==, self->end);
    g_assert_cmpuint (extent.length, ==, 9000);
    g_assert_true (extent.has_sha256);
    g_assert_cmpint (extent.sha256[31], ==, (int) (second % 200 + 1));
    g_assert_cmpuint (extent.generation, >, self->log->sequence);
    g_assert_cmpuint (get_attr (f, first).size, ==, 1000);
    assert_is_in (f, first, log, HEAD);
    g_assert_cmpuint (get_totals (f).n_objects, ==, 1);
    fixture_reopen (f);
    assert_is_in (f, second, log, 2048 + HEAD);
}

/* It is there until it is said that nobody needs it, and not a moment longer. */
static void test_log_stays (Shared *self, gconstpointer unused)
{
    (void) unused;
    Fixture *f = &self->f;
    uint64_t ino = make_logged (self, "file", 1000);
    append (self, ino, 2000);
    g_assert_false (drop_unused (f, self->log));
    unlink_file (f, "file");
    g_assert_cmpuint (get_totals (f).n_objects, ==, 1);
    g_assert_cmpuint (get_totals (f).n_deletions, ==, 0);
    (void) make_logged (self, "another", 500);
    g_assert_false (drop_unused (f, self->log));
    unlink_file (f, "another");
    g_assert_false (drop_unused (f, self->log)); /* more may come */
    end_log (self);
    g_assert_true (drop_unused (f, self->log));
    g_assert_cmpuint (get_totals (f).n_objects, ==, 0);
    g_assert_cmpuint (get_totals (f).n_deletions, ==, 3);
    g_assert_false (drop_unused (f, self->log));
    EcfsLogged logged = {.log = self->log->uuid, .offset = HEAD, .end = 1024};
    EcfsPublish publish = {.ino = make_file (f, ECFS_ROOT_INO, "late"), .logged = &logged, .size = 10};
    g_assert_cmpint (CODE (e, ecfs_catalog_publish (f->catalog, &publish, NULL, &e)), ==, EAGAIN);
}

/* Of another, say; what is on its way to it all the same is not in the way of that. */
static void test_log_is_closed (Shared *self, gconstpointer unused)
{
    (void) unused;
    Fixture *f = &self->f;
    int64_t more;
    EcfsStripeRow stripe = g_array_index (self->log->stripes, EcfsStripeRow, 0);
    stripe.instance++;
    g_assert_cmpint (CODE (e, ecfs_catalog_intent_more (f->catalog, self->log, &stripe, 1, &more, &e)), ==, EAGAIN);
    OK (e, ecfs_catalog_log_close (f->catalog, &self->log->uuid, &e));
    OK (e, ecfs_catalog_intent_more (f->catalog, self->log, &stripe, 1, &more, &e));
    g_assert_false (drop_unused (f, self->log)); /* a copy is being made */
    EcfsLogged logged = {.log = self->log->uuid, .offset = HEAD, .end = 1024, .intent = self->intent};
    EcfsPublish publish = {.ino = make_file (f, ECFS_ROOT_INO, "late"), .logged = &logged, .size = 10};
    g_assert_cmpint (CODE (e, ecfs_catalog_publish (f->catalog, &publish, NULL, &e)), ==, EAGAIN);
    OK (e, ecfs_catalog_intent_abort (f->catalog, more, &e));
    OK (e, ecfs_catalog_log_close (f->catalog, &self->log->uuid, &e)); /* as its owner does it, later */
    g_assert_true (drop_unused (f, self->log));
}

static void test_log_is_of_active_endpoints (Shared *self, gconstpointer unused)
{
    (void) unused;
    Fixture *f = &self->f;
    int64_t intent;
    g_autoptr (EcfsObjectRow) log = new_object (f, "copies:3", 0, 3);
    OK (e, ecfs_catalog_endpoint_set_state (f->catalog, f->endpoints[1], ECFS_ENDPOINT_DRAINING, &e));
    g_assert_cmpint (CODE (e, ecfs_catalog_log_begin (f->catalog, log, &intent, &e)), ==, EAGAIN);
    g_assert_cmpuint (get_totals (f).n_objects, ==, 1);
}

static void test_refused (Shared *self, gconstpointer unused)
{
    (void) unused;
    Fixture *f = &self->f;
    static const struct {
        uint64_t offset, end, size;
    } bad[] = {{HEAD, 1024, 0}, {HEAD, 1024, 1000}, {1024, 1024, 1}, {UINT64_MAX, 1024, 10}, {HEAD, UINT64_MAX, 10}};
    uint64_t ino = make_file (f, ECFS_ROOT_INO, "file");
    for (size_t i = 0; i < G_N_ELEMENTS (bad); i++) {
        EcfsLogged logged = {.log = self->log->uuid, .offset = bad[i].offset, .end = bad[i].end};
        EcfsPublish publish = {.ino = ino, .logged = &logged, .size = bad[i].size};
        g_assert_cmpint (CODE (e, ecfs_catalog_publish (f->catalog, &publish, NULL, &e)), ==, EINVAL);
    }
}

static void test_stripe_ends (Shared *self, gconstpointer unused)
{
    (void) unused;
    Fixture *f = &self->f;
    EcfsExtent extent;
    uint64_t ino = make_logged (self, "file", 1000);
    OK (e, ecfs_catalog_log_stripe_ends (f->catalog, &self->log->uuid, 2, 2048, &e));
    OK (e, ecfs_catalog_log_stripe_ends (f->catalog, &self->log->uuid, 1, 0, &e));
    g_autoptr (EcfsObjectRow) log = only_object (f, ino, &extent);
    g_assert_cmpuint (g_array_index (log->stripes, EcfsStripeRow, 0).size, ==, 0);
    g_assert_cmpuint (g_array_index (log->stripes, EcfsStripeRow, 1).size, ==, 1); /* nothing, and not all */
    g_assert_cmpuint (g_array_index (log->stripes, EcfsStripeRow, 2).size, ==, 2048);
}

/* Packs */

/* A pack of @size bytes that has no files yet. */
static EcfsObjectRow *begin_pack (Fixture *f, uint64_t size, int64_t *ret_intent)
{
    EcfsObjectRow *pack = new_object (f, "rs:4+2", size, 6);
    pack->kind = ECFS_OBJECT_PACK;
    OK (e, ecfs_catalog_intent_begin (f->catalog, pack, 0, ret_intent, &e));
    OK (e, ecfs_catalog_pack_begin (f->catalog, pack, *ret_intent, &e));
    return pack;
}

/* Where the file's content is now, as a move to @to. */
static EcfsPackMove move_of (Fixture *f, uint64_t ino, uint64_t to)
{
    EcfsExtent extent;
    g_autoptr (EcfsObjectRow) object = only_object (f, ino, &extent);
    EcfsPackMove move = {.ino = ino,
                         .length = extent.length,
                         .from = extent.object_offset,
                         .to = to,
                         .generation = object->kind == ECFS_OBJECT_WHOLE ? object->sequence : extent.generation,
                         .is_known = extent.has_sha256};
    memset (move.sha256, 'p', sizeof move.sha256);
    return move;
}

static void test_pack (Shared *self, gconstpointer unused)
{
    (void) unused;
    Fixture *f = &self->f;
    int64_t intent;
    uint64_t inos[2] = {make_logged (self, "first", 1000), make_logged (self, "second", 9000)};
    g_autoptr (EcfsObjectRow) pack = begin_pack (f, 10000, &intent);
    g_assert_false (drop_unused (f, pack)); /* its files are to come */
    EcfsPackMove moves[2] = {move_of (f, inos[1], 0), move_of (f, inos[0], 9000)};
    OK (e, ecfs_catalog_pack_move (f->catalog, &pack->uuid, &self->log->uuid, moves, 2, &e));
    g_assert_true (moves[0].moved && moves[1].moved);
    OK (e, ecfs_catalog_pack_end (f->catalog, &pack->uuid, intent, &e));
    assert_is_in (f, inos[0], pack, 9000);
    assert_is_in (f, inos[1], pack, 0);
    end_log (self);
    g_assert_true (drop_unused (f, self->log));
    g_assert_false (drop_unused (f, pack));
    g_assert_cmpuint (get_totals (f).n_objects, ==, 1);
    fixture_reopen (f);
    assert_is_in (f, inos[0], pack, 9000);
}

/* What became another content meanwhile keeps it, and what goes on has the pack's. */
static void test_pack_is_overtaken (Shared *self, gconstpointer unused)
{
    (void) unused;
    Fixture *f = &self->f;
    int64_t intent;
    static const char *const file_names[] = {"kept", "changed", "cut", "gone", "linked"};
    uint64_t inos[5];
    EcfsPackMove moves[5];
    EcfsAttr attr = {.size = 500};
    for (size_t i = 0; i < 5; i++)
        inos[i] = make_logged (self, file_names[i], 1000);
    for (size_t i = 0; i < 5; i++)
        moves[i] = move_of (f, inos[i], 1000 * i);
    g_autoptr (EcfsObjectRow) pack = begin_pack (f, 5000, &intent);
    append (self, inos[1], 1000);
    OK (e, ecfs_catalog_setattr (f->catalog, inos[2], &attr, ECFS_ATTR_SIZE, &attr, &e));
    unlink_file (f, "gone");
    OK (e, ecfs_catalog_link (f->catalog, inos[4], ECFS_ROOT_INO, "another", &attr, &e));
    OK (e, ecfs_catalog_pack_move (f->catalog, &pack->uuid, &self->log->uuid, moves, 5, &e));
    OK (e, ecfs_catalog_pack_end (f->catalog, &pack->uuid, intent, &e));
    g_assert_true (moves[0].moved && moves[4].moved);
    g_assert_false (moves[1].moved || moves[2].moved || moves[3].moved);
    g_autoptr (EcfsObjectRow) log = ecfs_object_row_copy (self->log);
    assert_is_in (f, inos[0], pack, 0);
    assert_is_in (f, inos[1], log, 5 * 2048 + HEAD);
    assert_is_in (f, inos[2], log, 2 * 2048 + HEAD);
    assert_is_in (f, inos[4], pack, 4000);
    g_assert_false (drop_unused (f, self->log));
    uint64_t live;
    EcfsExtent extent;
    g_autoptr (EcfsObjectRow) row = only_object (f, inos[0], &extent);
    OK (e, ecfs_catalog_live_bytes (f->catalog, row->id, &live, &e));
    g_assert_cmpuint (live, ==, 2000);
}

/* Small objects of their own become part of a pack, and go with that. */
static void test_pack_of_objects (Shared *self, gconstpointer unused)
{
    (void) unused;
    Fixture *f = &self->f;
    int64_t intent;
    EcfsExtent extent;
    uint64_t ino = make_file (f, ECFS_ROOT_INO, "file");
    g_autoptr (EcfsObjectRow) object = new_object (f, "copies:3", 700, 3);
    publish_one (f, ino, object);
    g_autoptr (EcfsObjectRow) pack = begin_pack (f, 10000, &intent);
    EcfsPackMove move = move_of (f, ino, 100);
    g_assert_false (move.is_known);
    OK (e, ecfs_catalog_pack_move (f->catalog, &pack->uuid, &object->uuid, &move, 1, &e));
    OK (e, ecfs_catalog_pack_end (f->catalog, &pack->uuid, intent, &e));
    g_assert_true (move.moved);
    g_autoptr (EcfsObjectRow) own = only_object (f, ino, &extent);
    g_assert_cmpint (own->kind, ==, ECFS_OBJECT_PACK);
    g_assert_cmpuint (extent.generation, ==, object->sequence);
    g_assert_cmpint (extent.sha256[0], ==, 'p');
    g_assert_cmpuint (get_totals (f).n_objects, ==, 2);
    g_assert_cmpuint (get_totals (f).n_deletions, ==, 3);
    OK (e, ecfs_catalog_pack_move (f->catalog, &pack->uuid, &object->uuid, &move, 1, &e)); /* it is gone by now */
    g_assert_false (move.moved);
}

/* A pack that no file came into, or that was being filled at a crash, is not there for ever. */
static void test_pack_of_nothing (Shared *self, gconstpointer unused)
{
    (void) unused;
    Fixture *f = &self->f;
    int64_t intent;
    g_autoptr (EcfsObjectRow) first = begin_pack (f, 1000, &intent);
    OK (e, ecfs_catalog_pack_end (f->catalog, &first->uuid, intent, &e));
    g_assert_cmpuint (get_totals (f).n_objects, ==, 1);
    g_assert_cmpuint (get_totals (f).n_deletions, ==, 6);
    g_autoptr (EcfsObjectRow) second = begin_pack (f, 1000, &intent);
    fixture_reopen (f);
    g_assert_false (drop_unused (f, second));
    OK (e, ecfs_catalog_intents_abort_all (f->catalog, &e));
    g_assert_cmpuint (get_totals (f).n_deletions, ==, 6); /* that ends no pack */
    g_assert_true (drop_unused (f, second));
    g_assert_cmpuint (get_totals (f).n_deletions, ==, 12);
}

static void test_pack_bounds (Shared *self, gconstpointer unused)
{
    (void) unused;
    Fixture *f = &self->f;
    int64_t intent;
    uint64_t ino = make_logged (self, "file", 1000);
    g_autoptr (EcfsObjectRow) pack = begin_pack (f, 1500, &intent);
    EcfsPackMove move = move_of (f, ino, 501);
    g_assert_cmpint (CODE (e, ecfs_catalog_pack_move (f->catalog, &pack->uuid, &self->log->uuid, &move, 1, &e)), ==,
                     EINVAL);
    move.to = UINT64_MAX;
    g_assert_cmpint (CODE (e, ecfs_catalog_pack_move (f->catalog, &pack->uuid, &self->log->uuid, &move, 1, &e)), ==,
                     EINVAL);
    move.to = 500;
    g_assert_cmpint (CODE (e, ecfs_catalog_pack_move (f->catalog, &self->log->uuid, &pack->uuid, &move, 1, &e)), ==,
                     ESTALE); /* a log is no pack */
    OK (e, ecfs_catalog_pack_move (f->catalog, &pack->uuid, &self->log->uuid, &move, 1, &e));
    g_assert_true (move.moved);
    OK (e, ecfs_catalog_pack_end (f->catalog, &pack->uuid, intent, &e));
}

static void test_dead_packs (Shared *self, gconstpointer unused)
{
    (void) unused;
    Fixture *f = &self->f;
    int64_t intent;
    g_autoptr (GError) error = NULL;
    uint64_t inos[2] = {make_logged (self, "first", 4000), make_logged (self, "second", 6000)};
    g_autoptr (EcfsObjectRow) pack = begin_pack (f, 10000, &intent);
    EcfsPackMove moves[2] = {move_of (f, inos[0], 0), move_of (f, inos[1], 4000)};
    OK (e, ecfs_catalog_pack_move (f->catalog, &pack->uuid, &self->log->uuid, moves, 2, &e));
    OK (e, ecfs_catalog_pack_end (f->catalog, &pack->uuid, intent, &e));
    static const unsigned percents[] = {1, 40, 41, 100};
    for (size_t n_dead = 0; n_dead < 3; n_dead++) {
        static const unsigned n_found[][4] = {{0, 0, 0, 0}, {1, 1, 0, 0}, {1, 1, 1, 1}};
        for (size_t i = 0; i < G_N_ELEMENTS (percents); i++) {
            g_autoptr (GArray) dead = ecfs_catalog_dead_packs (f->catalog, 0, percents[i], 10, &error);
            g_assert_no_error (error);
            g_assert_cmpuint (dead->len, ==, n_found[n_dead][i]);
        }
        if (n_dead < 2)
            unlink_file (f, n_dead == 0 ? "first" : "second");
    }
    g_assert_true (drop_unused (f, pack));
}

/* What did not come into a pack is dead in it from the beginning, and one that nobody needs any more is found. */
static void test_dead_from_the_beginning (Shared *self, gconstpointer unused)
{
    (void) unused;
    Fixture *f = &self->f;
    int64_t intent;
    g_autoptr (GError) error = NULL;
    uint64_t ino = make_logged (self, "first", 4000);
    g_autoptr (EcfsObjectRow) pack = begin_pack (f, 10000, &intent);
    EcfsPackMove move = move_of (f, ino, 0);
    g_autoptr (GArray) filling = ecfs_catalog_dead_packs (f->catalog, 0, 1, 10, &error);
    g_assert_cmpuint (filling->len, ==, 0);
    OK (e, ecfs_catalog_pack_move (f->catalog, &pack->uuid, &self->log->uuid, &move, 1, &e));
    OK (e, ecfs_catalog_pack_end (f->catalog, &pack->uuid, intent, &e));
    g_autoptr (GArray) most = ecfs_catalog_dead_packs (f->catalog, 0, 60, 10, &error);
    g_assert_cmpuint (most->len, ==, 1);
    g_autoptr (GArray) more = ecfs_catalog_dead_packs (f->catalog, 0, 61, 10, &error);
    g_assert_cmpuint (more->len, ==, 0);
    unlink_file (f, "first");
    g_autoptr (GArray) empty = ecfs_catalog_dead_packs (f->catalog, 0, 101, 10, &error);
    g_assert_cmpuint (empty->len, ==, 1);
    g_assert_true (drop_unused (f, pack));
}

static void test_lists (Shared *self, gconstpointer unused)
{
    (void) unused;
    Fixture *f = &self->f;
    g_autoptr (GError) error = NULL;
    EcfsExtent extent;
    int64_t intent;
    ecfs_object_row_free (begin_log (f, &intent)); /* another, of nobody */
    uint64_t inos[3] = {make_logged (self, "a", 10), make_logged (self, "b", 20), make_logged (self, "c", 30)};
    g_autoptr (EcfsObjectRow) log = only_object (f, inos[0], &extent);
    g_autoptr (GArray) logs = ecfs_catalog_objects_of_kind (f->catalog, ECFS_OBJECT_LOG, false, 0, 10, &error);
    g_assert_cmpuint (logs->len, ==, 2);
    g_assert_cmpint (g_array_index (logs, int64_t, 0), ==, log->id);
    g_autoptr (GArray) behind = ecfs_catalog_objects_of_kind (f->catalog, ECFS_OBJECT_LOG, false, log->id, 10, &error);
    g_assert_cmpuint (behind->len, ==, 1);
    g_autoptr (GArray) before = ecfs_catalog_objects_of_kind (f->catalog, ECFS_OBJECT_LOG, true, 0, 10, &error);
    g_assert_cmpuint (before->len, ==, 0);
    g_autoptr (EcfsObjectRow) other = ecfs_catalog_object (f->catalog, g_array_index (behind, int64_t, 0), &error);
    OK (e, ecfs_catalog_log_close (f->catalog, &other->uuid, &e));
    g_autoptr (GArray) ended = ecfs_catalog_objects_of_kind (f->catalog, ECFS_OBJECT_LOG, true, 0, 10, &error);
    g_assert_cmpuint (ended->len, ==, 1);
    g_assert_cmpint (g_array_index (ended, int64_t, 0), ==, g_array_index (behind, int64_t, 0));
    g_autoptr (GArray) some = ecfs_catalog_sharers (f->catalog, log->id, inos[0], 1, &error);
    g_assert_no_error (error);
    g_assert_cmpuint (some->len, ==, 1);
    const EcfsSharer *sharer = &g_array_index (some, EcfsSharer, 0);
    g_assert_cmpuint (sharer->ino, ==, inos[1]);
    g_assert_cmpuint (sharer->extent.length, ==, 20);
    g_assert_cmpuint (sharer->extent.object_offset, ==, 1024 + HEAD);
}

int main (int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*test) (Shared *self, gconstpointer unused);
    } cases[] = {{"a-log-grows-by-records", test_log},
                 {"a-log-stays-until-it-is-told-to-go", test_log_stays},
                 {"a-log-of-another-is-closed", test_log_is_closed},
                 {"a-log-is-at-active-endpoints", test_log_is_of_active_endpoints},
                 {"impossible-records-are-refused", test_refused},
                 {"a-stripe-of-a-log-may-end", test_stripe_ends},
                 {"files-move-into-a-pack", test_pack},
                 {"files-that-changed-do-not", test_pack_is_overtaken},
                 {"small-objects-go-into-packs", test_pack_of_objects},
                 {"a-pack-of-nothing-goes", test_pack_of_nothing},
                 {"a-pack-has-bounds", test_pack_bounds},
                 {"what-is-dead-is-counted", test_dead_packs},
                 {"what-is-dead-from-the-beginning-is-counted", test_dead_from_the_beginning},
                 {"logs-and-their-files-are-listed", test_lists}};
    g_test_init (&argc, &argv, NULL);
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++) {
        g_autofree char *path = g_strconcat ("/shared/", cases[i].name, NULL);
        g_test_add (path, Shared, NULL, set_up, cases[i].test, tear_down);
    }
    return g_test_run ();
}
