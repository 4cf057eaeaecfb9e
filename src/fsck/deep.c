/*
 * Which stripes a deep check reads, in which order, and what is kept of it.
 *
 * A check of everything is a pass: it goes round over ranges of UUIDs, always on with the one that was verified before
 * all others, and cuts them so that each endpoint has either verified all of a piece in this pass or nothing. What an
 * endpoint has verified is kept each second, so whatever ends a run, the next goes on from there. Stripes that are
 * unknown count as seen, or a pass would never end, and not as verified, so the next pass begins with them.
 *
 * A sample, and what is named, is read as it comes, and not kept.
 */
#include "fsck/fsck_priv.h"
#include "util/xxh3.h"

#define BATCH       1024         /* objects */
#define BATCH_BYTES (4ull << 30) /* of stripes, unless one object has more */
#define KEEP_US     1000000
#define KNOWN       256 /* stripes found damaged, at once */

typedef struct Deep {
    EcfsFsckRun *run;
    EcfsScrub *notes; /* NULL: nothing is kept, or not any more */
    EcfsScrubState state;
    GArray **verified;      /* n_endpoints ranges; NULL: the endpoint is not read. What is kept, … */
    GArray **seen;          /* … and what was tried, too */
    int64_t keep_us;        /* when to keep it next */
    EcfsCheckBatch *batch;  /* that is being read */
    EcfsRemoteHash *remote; /* NULL: all is read */
    bool *is_due;           /* n_endpoints; NULL: nothing is kept of it */
    uint64_t most_bytes;    /* that are read; 0: all */
    uint64_t limit;         /* of hashes that are in the sample; 0: all are */
    uint64_t *n_all;        /* stripes by endpoint, of what was gone over, … */
    uint64_t *n_read;       /* … in the sample and read, … */
    uint64_t *n_bad;        /* … and of these not fine … */
    uint64_t *n_unread;     /* … or not read */
} Deep;

static int64_t now_ns (void)
{
    return g_get_real_time () * 1000;
}

/* Batches */

static uint64_t bytes_of (const EcfsObjectRow *object)
{
    uint64_t bytes = 0;
    for (guint i = 0; i < object->stripes->len; i++)
        bytes += g_array_index (object->stripes, EcfsStripeRow, i).size;
    return bytes;
}

/* Leaves so many that they are few enough bytes; *after becomes the last, where others go. */
static void cut_bytes (GPtrArray *objects, EcfsUuid *after, bool *ret_more)
{
    uint64_t bytes = 0;
    for (guint i = 0; i < objects->len; i++) {
        bytes += bytes_of (g_ptr_array_index (objects, i));
        if (bytes < BATCH_BYTES || i + 1 == objects->len)
            continue;
        *after = ((const EcfsObjectRow *) g_ptr_array_index (objects, i))->uuid;
        *ret_more = true;
        g_ptr_array_set_size (objects, (int) i + 1);
    }
}

/* What presence has found, and what is on no endpoint that can be asked, is not read. */
static bool leave_out_faulty (const EcfsFsckRun *run, GArray *stripes, GError **error)
{
    const EcfsObjectRow *object = NULL;
    g_autoptr (GArray) faults = NULL;
    for (guint i = 0; i < stripes->len; i++) {
        EcfsCheckedStripe *checked = &g_array_index (stripes, EcfsCheckedStripe, i);
        const EcfsArchiveEndpoint *endpoint =
            checked->position == SIZE_MAX ? NULL : ecfs_archive_endpoint (run->archive, checked->position);
        if (object != checked->object) {
            g_clear_pointer (&faults, g_array_unref);
            faults = ecfs_spool_faults (run->spool, &checked->object->uuid, error);
            if (faults == NULL)
                return false;
        }
        object = checked->object;
        checked->is_left_out = endpoint == NULL || !ecfs_archive_endpoint_counts (endpoint);
        for (guint j = 0; j < faults->len; j++) {
            const EcfsSpoolFault *fault = &g_array_index (faults, EcfsSpoolFault, j);
            if (fault->index != checked->stripe->index)
                continue;
            checked->is_left_out = true;
            if (fault->fault == ECFS_STRIPE_UNKNOWN)
                checked->fault = ECFS_STRIPE_UNKNOWN;
        }
    }
    return true;
}

/* Keeping */

/* What cannot be noted any more is verified all the same, and not noted: nor is what comes. */
static void stop_noting (Deep *self, GError *why)
{
    g_warning ("%s; what is verified from now on is not noted", why->message);
    g_error_free (why);
    g_clear_pointer (&self->notes, ecfs_scrub_close);
    self->run->deep.keeps = false;
}

/* Whether it is known to be as it is; unknown is not. */
static bool is_verified (const EcfsCheckedStripe *checked)
{
    return atomic_load (&checked->is_settled) && checked->fault != ECFS_STRIPE_UNKNOWN;
}

/* What presence could not tell is no more verified than what was not read. */
static bool is_open (const EcfsCheckedStripe *checked, size_t position)
{
    bool verified = checked->is_left_out ? checked->fault != ECFS_STRIPE_UNKNOWN : is_verified (checked);
    return checked->position == position && !verified;
}

static bool note_damages (const Deep *self, size_t position, guint n, GError **error)
{
    for (guint i = 0; i < n; i++) {
        const EcfsCheckedStripe *checked = &g_array_index (self->batch->stripes, EcfsCheckedStripe, i);
        const EcfsScrubDamage damage = {
            .object = checked->object->id, .index = checked->stripe->index, .instance = checked->stripe->instance};
        if (checked->position != position || checked->is_left_out) /* others may be read just now */
            continue;
        bool damaged = checked->fault == ECFS_STRIPE_DAMAGED || checked->fault == ECFS_STRIPE_SIZE ||
                       checked->fault == ECFS_STRIPE_FORGED;
        if (damaged && !ecfs_scrub_set_damage (self->notes, &damage, true, error))
            return false;
    }
    return true;
}

/* Notes what an endpoint has verified of the batch, from its beginning on without a gap; of a catalog that hides some,
 * nothing. */
static void note_endpoint (Deep *self, size_t position)
{
    const GArray *stripes = self->batch->stripes;
    guint n = 0;
    GError *why = NULL;
    if (!self->run->is_sound)
        return;
    while (n < stripes->len && !is_open (&g_array_index (stripes, EcfsCheckedStripe, n), position))
        n++;
    EcfsUuid last = self->batch->last;
    if (n < stripes->len) {
        const EcfsObjectRow *open = g_array_index (stripes, EcfsCheckedStripe, n).object;
        while (n > 0 && g_array_index (stripes, EcfsCheckedStripe, n - 1).object == open)
            n--;
        last = n == 0 ? self->batch->after : g_array_index (stripes, EcfsCheckedStripe, n - 1).object->uuid;
    }
    ecfs_ranges_set (self->verified[position], &self->batch->after, &last, self->state.pass, now_ns ());
    int64_t endpoint = ecfs_archive_endpoint (self->run->archive, position)->id;
    if (self->notes != NULL && (!note_damages (self, position, n, &why) ||
                                !ecfs_scrub_set_ranges (self->notes, endpoint, self->verified[position], &why)))
        stop_noting (self, why);
}

static void keep (Deep *self)
{
    GError *why = NULL;
    for (size_t i = 0; self->is_due != NULL && i < self->run->n_endpoints; i++)
        if (self->is_due[i])
            note_endpoint (self, i);
    self->keep_us = ecfs_now_us () + KEEP_US;
    if (self->notes != NULL && !ecfs_scrub_keep (self->notes, &why))
        stop_noting (self, why);
}

static bool tick (void *user)
{
    Deep *self = user;
    EcfsFsckRun *run = self->run;
    ecfs_mutex_lock (&run->pace.lock);
    run->progress.checked_bytes = run->pace.bytes;
    ecfs_mutex_unlock (&run->pace.lock);
    if (self->most_bytes > 0 && run->progress.checked_bytes >= self->most_bytes && !run->is_late)
        run->is_done = run->is_late = true; /* what was begun is read to its end, as when it is late */
    if (ecfs_now_us () >= self->keep_us)
        keep (self);
    (void) ecfs_fsck_tick (run); /* it remembers; what is late goes on with what was begun */
    return !run->cancelled;
}

/* Reading */

static void count (Deep *self, const GArray *stripes)
{
    for (guint i = 0; i < stripes->len; i++) {
        const EcfsCheckedStripe *checked = &g_array_index (stripes, EcfsCheckedStripe, i);
        if (checked->is_left_out)
            continue;
        bool verified = is_verified (checked);
        self->run->deep.n_stripes += verified;
        self->run->deep.n_unchanged += checked->is_unchanged;
        self->n_read[checked->position] += verified;
        self->n_bad[checked->position] += verified && checked->fault != ECFS_STRIPE_FINE;
        self->n_unread[checked->position] += !verified;
    }
}

/* Digests */

static EcfsScrubDigest digest_of (const Deep *self, const EcfsCheckedStripe *checked)
{
    return (EcfsScrubDigest){.object = checked->object->id,
                             .index = checked->stripe->index,
                             .instance = checked->stripe->instance,
                             .endpoint = ecfs_archive_endpoint (self->run->archive, checked->position)->id,
                             .text = checked->digest};
}

/* What is as it was when its packets were verified is not read. */
static void ask_before (Deep *self, EcfsCheckBatch *batch)
{
    if (self->remote == NULL || self->notes == NULL)
        return;
    ecfs_remote_hash_ask (self->remote, batch);
    for (guint i = 0; self->notes != NULL && i < batch->stripes->len; i++) {
        EcfsCheckedStripe *checked = &g_array_index (batch->stripes, EcfsCheckedStripe, i);
        GError *why = NULL;
        if (checked->digest == NULL)
            continue;
        const EcfsScrubDigest digest = digest_of (self, checked);
        if (!ecfs_scrub_has_digest (self->notes, &digest, &checked->is_unchanged, &why))
            stop_noting (self, why);
        if (!checked->is_unchanged)
            continue;
        uint64_t *left = &self->run->progress.checked_bytes_all; /* that are to be moved */
        *left -= MIN (*left, checked->stripe->size);
        atomic_store (&checked->is_settled, true);
    }
}

/* Learns what was said of a stripe before all of it was verified, and is said still: so of these very bytes. */
static void ask_after (Deep *self, EcfsCheckBatch *batch)
{
    if (self->remote == NULL || self->notes == NULL)
        return;
    ecfs_remote_hash_ask_again (self->remote, batch);
    for (guint i = 0; self->notes != NULL && i < batch->stripes->len; i++) {
        const EcfsCheckedStripe *checked = &g_array_index (batch->stripes, EcfsCheckedStripe, i);
        GError *why = NULL;
        if (checked->is_left_out || !is_verified (checked) ||
            (checked->digest == NULL && checked->fault == ECFS_STRIPE_FINE)) /* nothing new */
            continue;
        const EcfsScrubDigest digest = digest_of (self, checked);
        if (!ecfs_scrub_set_digest (self->notes, &digest, self->state.pass, &why))
            stop_noting (self, why);
    }
}

/* Contents */

static void content_clear (gpointer data)
{
    EcfsCheckedContent *content = data;
    g_free (content->problem);
    g_free (content->lies);
}

/* Stripes that lie and were read before, in this pass or by a run that did not compare them. */
static void blame (EcfsCheckBatch *batch, const EcfsCheckedContent *content)
{
    for (guint i = 0; content->lies != NULL && i < batch->stripes->len; i++) {
        EcfsCheckedStripe *checked = &g_array_index (batch->stripes, EcfsCheckedStripe, i);
        if (checked->object != content->object || !content->lies[checked->stripe->index] ||
            checked->fault != ECFS_STRIPE_FINE || checked->position == SIZE_MAX)
            continue;
        ecfs_checked_forged (checked);
        checked->is_left_out = false;
        atomic_store (&checked->is_settled, true);
    }
}

static void tell_content (EcfsFsckRun *run, const EcfsCheckedContent *content)
{
    uint64_t ino;
    if (content->problem == NULL)
        return;
    g_autofree char *text = g_strdup_printf ("object %" G_GINT64_FORMAT ": %s", content->object->id, content->problem);
    ecfs_fsck_tell_problem (
        run, ecfs_catalog_object_file (ecfs_archive_catalog (run->archive), content->object->id, &ino, NULL) ? ino : 0,
        text);
}

static bool note_contents (Deep *self, EcfsCheckBatch *batch, GError **error)
{
    for (guint i = 0; i < batch->contents->len; i++) {
        const EcfsCheckedContent *content = &g_array_index (batch->contents, EcfsCheckedContent, i);
        blame (batch, content);
        tell_content (self->run, content);
    }
    return ecfs_fsck_keep_sha256 (self->run, batch->contents, error);
}

/* Reads what is not left out; what it ends early leaves unsettled is as if not looked at. */
static bool read_batch (Deep *self, GPtrArray *objects, GArray *stripes, EcfsUuid after, EcfsUuid last, GError **error)
{
    EcfsFsckRun *run = self->run;
    EcfsCheckBatch batch = {.archive = run->archive,
                            .objects = objects,
                            .stripes = stripes,
                            .after = after,
                            .last = last,
                            .tick = tick,
                            .user = self,
                            .is_late = &run->is_late,
                            .by_content = self->limit == 0,
                            .by_parts = self->remote == NULL};
    g_autoptr (GArray) contents = g_array_new (FALSE, FALSE, sizeof (EcfsCheckedContent));
    g_array_set_clear_func (contents, content_clear);
    batch.contents = contents;
    self->batch = &batch;
    ask_before (self, &batch);
    bool whole = ecfs_check_packets (&batch, &run->pace) && ecfs_check_gone (&batch);
    bool noted = note_contents (self, &batch, error);
    ask_after (self, &batch);
    for (guint i = 0; i < stripes->len; i++) {
        EcfsCheckedStripe *checked = &g_array_index (stripes, EcfsCheckedStripe, i);
        if (whole && checked->fault == ECFS_STRIPE_GONE)
            atomic_store (&checked->is_settled, true);
        if (!whole && !atomic_load (&checked->is_settled)) {
            checked->fault = ECFS_STRIPE_FINE;
            g_clear_pointer (&checked->text, g_free);
        }
    }
    count (self, stripes);
    run->progress.n_done += objects->len;
    bool good = noted && ecfs_fsck_spool (run, stripes, error);
    if (good)
        keep (self);
    self->batch = NULL;
    self->is_due = NULL;
    return good;
}

/* What is read as it comes */

static bool is_chosen (const Deep *self, const EcfsCheckedStripe *checked)
{
    uint8_t key[sizeof (EcfsUuid) + 1];
    memcpy (key, checked->object->uuid.bytes, sizeof (EcfsUuid));
    key[sizeof (EcfsUuid)] = (uint8_t) checked->stripe->index;
    return self->limit == 0 || ecfs_xxh3_64_seeded (key, sizeof key, self->run->what->seed) < self->limit;
}

static void choose (Deep *self, GArray *stripes)
{
    for (guint i = 0; i < stripes->len; i++) {
        EcfsCheckedStripe *checked = &g_array_index (stripes, EcfsCheckedStripe, i);
        if (checked->is_left_out)
            continue;
        self->n_all[checked->position]++;
        checked->is_left_out = !is_chosen (self, checked);
    }
}

static bool read_as_it_comes (Deep *self, GError **error)
{
    EcfsFsckRun *run = self->run;
    EcfsUuid after = {.bytes = {0}};
    for (bool more = true; more && !run->is_late;) {
        EcfsUuid before = after;
        g_autoptr (GPtrArray) objects = ecfs_fsck_objects (run, &after, BATCH, &more, error);
        if (objects == NULL)
            return false;
        cut_bytes (objects, &after, &more);
        g_autoptr (GArray) stripes = ecfs_fsck_stripes (run, objects);
        if (!leave_out_faulty (run, stripes, error))
            return false;
        choose (self, stripes);
        if (!read_batch (self, objects, stripes, before, after, error) || !ecfs_fsck_goes_on (run, error))
            return false;
    }
    run->deep.is_whole = !run->is_late && run->is_sound;
    return true;
}

/* What the sample tells: of endpoints that answered for all of theirs. */
static void conclude_sample (Deep *self)
{
    for (size_t i = 0; i < self->run->n_endpoints; i++) {
        if (self->n_unread[i] > 0)
            continue;
        self->run->deep.n_population += self->n_all[i];
        self->run->deep.n_sampled += self->n_read[i];
        self->run->deep.n_bad += self->n_bad[i];
    }
}

/* Passes */

static bool load_ranges (Deep *self, GError **error)
{
    for (size_t i = 0; i < self->run->n_endpoints; i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (self->run->archive, i);
        if (!ecfs_archive_endpoint_counts (endpoint))
            continue;
        self->verified[i] = ecfs_scrub_ranges (self->notes, endpoint->id, self->state.pass, error);
        if (self->verified[i] == NULL)
            return false;
        self->seen[i] = g_array_copy (self->verified[i]);
    }
    return true;
}

/* Where nothing can be noted, it is read all the same; but two at a time would be a mistake. */
static EcfsScrub *open_notes (const EcfsFsckRun *run, bool *ret_keeps, GError **error)
{
    g_autoptr (GError) why = NULL;
    bool dry = (run->what->flags & ECFS_FSCK_DRY) != 0;
    EcfsScrub *notes = dry ? NULL : ecfs_scrub_open (ecfs_archive_directory (run->archive), true, &why);
    *ret_keeps = notes != NULL;
    if (notes != NULL || dry || why->code != EALREADY) {
        if (why != NULL)
            g_warning ("%s; what is verified is not noted", why->message);
        return notes != NULL ? notes : ecfs_scrub_open (ecfs_archive_directory (run->archive), false, error);
    }
    g_propagate_error (error, g_steal_pointer (&why));
    return NULL;
}

static bool begin_pass (Deep *self, GError **error)
{
    bool keeps;
    GError *why = NULL;
    self->notes = open_notes (self->run, &keeps, error);
    if (self->notes == NULL || !ecfs_scrub_state (self->notes, &self->state, error) || !load_ranges (self, error))
        return false;
    if (!self->state.open || !keeps) {
        self->state.pass++;
        self->state.open = true;
        self->state.began_ns = now_ns ();
    }
    self->run->deep.keeps = keeps;
    bool asks = (self->run->what->flags & ECFS_FSCK_REMOTE_HASH) != 0;
    if (asks && ecfs_archive_keys (self->run->archive) != NULL) /* who saw the bytes once tells any digest for ever */
        g_warning ("the archive has a key, by which its stripes are verified: they are read, and no endpoint is asked "
                   "for digests");
    else if (keeps && asks)
        self->remote = ecfs_remote_hash_new (self->run->archive);
    if (!keeps)
        g_clear_pointer (&self->notes, ecfs_scrub_close);
    else if (!ecfs_scrub_set_state (self->notes, &self->state, &why) || !ecfs_scrub_keep (self->notes, &why))
        stop_noting (self, why);
    return true;
}

/* The part of all that this pass has verified, about: as if each endpoint had as much of each object. */
static double share_of (const Deep *self)
{
    return ecfs_ranges_share (self->verified, self->run->n_endpoints, self->state.pass,
                              ecfs_archive_catalog (self->run->archive));
}

static bool is_whole (const Deep *self)
{
    if (!self->run->is_sound)
        return false;
    for (size_t i = 0; i < self->run->n_endpoints; i++)
        if (self->verified[i] != NULL && ecfs_ranges_oldest (self->verified[i], self->state.pass) != NULL)
            return false;
    return true;
}

/* What was verified before all else and is not seen in this pass; false: all is. */
static bool oldest (const Deep *self, EcfsUuid *ret_after)
{
    const EcfsScrubRange *found = NULL;
    for (size_t i = 0; i < self->run->n_endpoints; i++) {
        const EcfsScrubRange *one = self->seen[i] == NULL ? NULL : ecfs_ranges_oldest (self->seen[i], self->state.pass);
        if (one != NULL &&
            (found == NULL || one->pass < found->pass || (one->pass == found->pass && one->time_ns < found->time_ns)))
            found = one;
    }
    if (found != NULL)
        *ret_after = found->after;
    return found != NULL;
}

/* The end of the piece behind @after of which each endpoint has seen all or nothing, and which have nothing. */
static EcfsUuid piece (const Deep *self, const EcfsUuid *after, bool *is_due)
{
    EcfsUuid last = ecfs_uuid_last;
    for (size_t i = 0; i < self->run->n_endpoints; i++) {
        is_due[i] = self->seen[i] != NULL && ecfs_ranges_at (self->seen[i], after)->pass < self->state.pass;
        EcfsUuid end = self->seen[i] == NULL ? last : ecfs_ranges_end (self->seen[i], after);
        if (memcmp (&end, &last, sizeof end) < 0)
            last = end;
    }
    return last;
}

/* Drops the objects behind @last; where there are none, the walk has come to it. */
static void cut_piece (GPtrArray *objects, const EcfsUuid *last, bool more, EcfsUuid *reached)
{
    guint n = objects->len;
    while (n > 0 &&
           memcmp (&((const EcfsObjectRow *) g_ptr_array_index (objects, n - 1))->uuid, last, sizeof *last) > 0)
        n--;
    if (n < objects->len || !more || memcmp (reached, last, sizeof *last) > 0)
        *reached = *last;
    g_ptr_array_set_size (objects, (int) n);
}

static bool read_piece (Deep *self, EcfsUuid after, GError **error)
{
    EcfsFsckRun *run = self->run;
    g_autofree bool *is_due = g_new0 (bool, run->n_endpoints + 1);
    EcfsUuid last = piece (self, &after, is_due), reached = after;
    bool more;
    g_autoptr (GPtrArray) objects = ecfs_fsck_objects (run, &reached, BATCH, &more, error);
    if (objects == NULL)
        return false;
    cut_bytes (objects, &reached, &more);
    cut_piece (objects, &last, more, &reached);
    g_autoptr (GArray) stripes = ecfs_fsck_stripes (run, objects);
    if (!leave_out_faulty (run, stripes, error))
        return false;
    for (guint i = 0; i < stripes->len; i++) {
        EcfsCheckedStripe *checked = &g_array_index (stripes, EcfsCheckedStripe, i);
        checked->is_left_out = checked->is_left_out || !is_due[checked->position];
    }
    self->is_due = is_due;
    if (!read_batch (self, objects, stripes, after, reached, error))
        return false;
    bool ended = run->is_late || run->cancelled;
    for (size_t i = 0; i < run->n_endpoints && !ended; i++)
        if (is_due[i])
            ecfs_ranges_set (self->seen[i], &after, &reached, self->state.pass, now_ns ());
    return true;
}

static void end_pass (Deep *self)
{
    GError *why = NULL;
    self->state.open = false;
    self->run->deep.is_whole = is_whole (self);
    if (self->run->deep.is_whole) {
        self->state.full_began_ns = self->state.began_ns;
        self->state.full_ended_ns = now_ns ();
    }
    bool forgets = self->remote != NULL && self->run->deep.is_whole;
    if (self->notes != NULL &&
        ((forgets && !ecfs_scrub_forget_digests (self->notes, self->state.pass, &why)) ||
         !ecfs_scrub_set_state (self->notes, &self->state, &why) || !ecfs_scrub_keep (self->notes, &why)))
        stop_noting (self, why);
}

static bool is_about (const EcfsScrubDamage *damage, const EcfsCheckedStripe *checked)
{
    return damage->object == checked->object->id && damage->index == checked->stripe->index &&
           damage->instance == checked->stripe->instance;
}

/* What was found damaged and is not so any more, for it was repaired, replaced, deleted or is read now. */
static void forget_healed (Deep *self, const GArray *known, const GArray *stripes)
{
    GError *why = NULL;
    for (guint i = 0; self->notes != NULL && i < known->len; i++) {
        const EcfsScrubDamage *damage = &g_array_index (known, EcfsScrubDamage, i);
        bool stays = false;
        for (guint j = 0; j < stripes->len && !stays; j++) {
            const EcfsCheckedStripe *checked = &g_array_index (stripes, EcfsCheckedStripe, j);
            stays = is_about (damage, checked) && !(is_verified (checked) && checked->fault == ECFS_STRIPE_FINE);
        }
        if (!stays && !ecfs_scrub_set_damage (self->notes, damage, false, &why))
            stop_noting (self, why);
    }
}

/* Of @known, what is of objects that can be read, which are added to @objects, or are gone; what is wrong with a row
 * was told, and says nothing of stripes. */
static GArray *clear_ones (Deep *self, const GArray *known, GPtrArray *objects)
{
    GArray *clear = g_array_new (FALSE, FALSE, sizeof (EcfsScrubDamage));
    bool is_clear = true;
    for (guint i = 0; i < known->len; i++) {
        const EcfsScrubDamage *damage = &g_array_index (known, EcfsScrubDamage, i);
        if (i == 0 || damage->object != (damage - 1)->object) {
            g_autoptr (GError) why = NULL;
            EcfsObjectRow *row = ecfs_catalog_object (ecfs_archive_catalog (self->run->archive), damage->object, &why);
            if (row != NULL)
                g_ptr_array_add (objects, row);
            is_clear = row != NULL || why->code == ENOENT;
        }
        if (is_clear)
            g_array_append_val (clear, *damage);
    }
    return clear;
}

/* What was found damaged by an earlier run is read anew, wherever this one begins. */
static bool read_known_batch (Deep *self, const GArray *noted, GError **error)
{
    g_autoptr (GPtrArray) objects = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_object_row_free);
    g_autoptr (GArray) known = clear_ones (self, noted, objects);
    g_autoptr (GArray) stripes = ecfs_fsck_stripes (self->run, objects);
    if (!leave_out_faulty (self->run, stripes, error))
        return false;
    for (guint i = 0; i < stripes->len; i++) {
        EcfsCheckedStripe *checked = &g_array_index (stripes, EcfsCheckedStripe, i);
        bool is_known = false;
        for (guint j = 0; j < known->len && !is_known; j++)
            is_known = is_about (&g_array_index (known, EcfsScrubDamage, j), checked);
        checked->is_left_out = checked->is_left_out || !is_known;
    }
    if (!read_batch (self, objects, stripes, (EcfsUuid){.bytes = {0}}, ecfs_uuid_last, error))
        return false;
    forget_healed (self, known, stripes);
    return true;
}

static bool read_known (Deep *self, GError **error)
{
    EcfsScrubDamage last;
    for (const EcfsScrubDamage *after = NULL; self->notes != NULL && !self->run->is_late; after = &last) {
        GError *why = NULL;
        g_autoptr (GArray) known = ecfs_scrub_damages (self->notes, after, KNOWN, &why);
        if (known == NULL)
            stop_noting (self, why);
        if (known == NULL || known->len == 0)
            return true;
        last = g_array_index (known, EcfsScrubDamage, known->len - 1);
        if (!read_known_batch (self, known, error) || !ecfs_fsck_goes_on (self->run, error))
            return false;
    }
    return true;
}

static bool read_pass (Deep *self, GError **error)
{
    EcfsUuid after;
    EcfsTotals totals = {0};
    EcfsFsckRun *run = self->run;
    if (!begin_pass (self, error))
        return false;
    (void) ecfs_catalog_totals (ecfs_archive_catalog (run->archive), &totals,
                                NULL); /* what is wrong with it was told */
    run->progress.checked_bytes_all = (uint64_t) ((1 - share_of (self)) * (double) totals.stripe_bytes);
    if (run->what->share > 0 && run->what->share < 1) {
        self->most_bytes = (uint64_t) (run->what->share * (double) totals.stripe_bytes) + 1;
        run->progress.checked_bytes_all = MIN (run->progress.checked_bytes_all, self->most_bytes);
    }
    if (!read_known (self, error))
        return false;
    bool more;
    while ((more = oldest (self, &after)) && !run->is_late && !run->cancelled)
        if (!read_piece (self, after, error))
            return false;
    if (!more || is_whole (self))
        end_pass (self);
    run->deep.left_bytes = (uint64_t) ((1 - share_of (self)) * (double) totals.stripe_bytes);
    run->deep.state = self->state;
    return ecfs_fsck_goes_on (run, error);
}

static void deep_clear (Deep *self)
{
    for (size_t i = 0; i < self->run->n_endpoints; i++) {
        if (self->verified[i] != NULL)
            g_array_unref (self->verified[i]);
        if (self->seen[i] != NULL)
            g_array_unref (self->seen[i]);
    }
    ecfs_remote_hash_free (self->remote);
    ecfs_scrub_close (self->notes);
}

bool ecfs_fsck_deep (EcfsFsckRun *self, GError **error)
{
    size_t n = self->n_endpoints + 1;
    g_autofree GArray **verified = g_new0 (GArray *, n), **seen = g_new0 (GArray *, n);
    g_autofree uint64_t *counts = g_new0 (uint64_t, 4 * n);
    Deep deep = {.run = self, .verified = verified, .seen = seen};
    deep.n_all = counts;
    deep.n_read = counts + n;
    deep.n_bad = counts + 2 * n;
    deep.n_unread = counts + 3 * n;
    if (self->what->sample > 0 && self->what->sample < 1)
        deep.limit = (uint64_t) (self->what->sample * 0x1p64);
    uint64_t n_objects = self->progress.n_all;
    ecfs_fsck_enter (self, "deep", self->is_named || self->what->sample > 0 ? n_objects : 0);
    bool as_it_comes = self->is_named || self->what->sample > 0;
    bool good = as_it_comes ? read_as_it_comes (&deep, error) : read_pass (&deep, error);
    conclude_sample (&deep);
    deep_clear (&deep);
    return good;
}
