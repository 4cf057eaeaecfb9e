/*
 * The content of an object, while a deep check reads its stripes: that these are what coding it gives, and that its
 * SHA-256 is what the catalog says. Where they are not, object/liars.c finds whose bytes are others than were stored;
 * that reads the object several times, which is rare.
 */
#include "archive/content.h"
#include "check/check.h"
#include "object/codeword.h"
#include "object/liars.h"

struct EcfsContentCheckup {
    EcfsCheckBatch *batch;
    EcfsReadPace *pace;
    const atomic_bool *cancelled;
    const EcfsObjectRow *object;
    guint first, n; /* of the batch's stripes */
    EcfsReaderParams params;
    EcfsReaderStripe stripes[ECFS_CODEC_MAX_N];
    EcfsCodeword *codeword;              /* NULL: the stripes that are read do not determine the content; then … */
    EcfsSha256 *areas[ECFS_CODEC_MAX_N]; /* … of the packet area of those that are read */
    bool reads[ECFS_CODEC_MAX_N];        /* of the batch that are read, and … */
    bool fine[ECFS_CODEC_MAX_N];         /* … were, and were fine; each its reader's */
};

static EcfsCheckedStripe *stripe_at (const EcfsContentCheckup *self, guint i)
{
    return &g_array_index (self->batch->stripes, EcfsCheckedStripe, self->first + i);
}

/* Prepares to compare what is read, and returns whether it can be. */
static bool prepare (EcfsContentCheckup *self)
{
    const EcfsCodec *codec = self->params.codec;
    unsigned n_read = 0;
    for (guint i = 0; i < self->n; i++) {
        const EcfsCheckedStripe *checked = stripe_at (self, i);
        bool reads = checked->fault == ECFS_STRIPE_FINE && !checked->is_left_out && !checked->is_unchanged &&
                     checked->stripe->index < ecfs_codec_n (codec);
        self->reads[checked->stripe->index] = reads;
        n_read += reads;
    }
    if (ecfs_codec_decodable (codec, self->reads))
        self->codeword = ecfs_codeword_new (codec, &self->params.layout, self->params.keys, self->reads);
    else if (n_read == 0 || !self->batch->by_parts || !self->object->has_sha256)
        return false;
    for (unsigned i = 0; i < ecfs_codec_n (codec) && self->codeword == NULL; i++)
        self->areas[i] = self->reads[i] ? ecfs_sha256_new () : NULL;
    return true;
}

EcfsContentCheckup *ecfs_checkup_new (EcfsCheckBatch *batch, guint first, guint n, EcfsReadPace *pace,
                                      const atomic_bool *cancelled)
{
    if (!batch->by_content)
        return NULL;
    EcfsContentCheckup *self = g_new0 (EcfsContentCheckup, 1);
    *self = (EcfsContentCheckup){.batch = batch, .pace = pace, .cancelled = cancelled, .first = first, .n = n};
    self->object = stripe_at (self, 0)->object;
    if (ecfs_archive_reader_params (batch->archive, self->object, NULL, self->stripes, &self->params, NULL) &&
        prepare (self))
        return self;
    ecfs_checkup_free (self);
    return NULL;
}

void ecfs_checkup_free (EcfsContentCheckup *self)
{
    if (self == NULL)
        return;
    ecfs_codeword_free (self->codeword);
    ecfs_reader_params_clear (&self->params);
    for (unsigned i = 0; i < ECFS_CODEC_MAX_N; i++)
        ecfs_sha256_free (self->areas[i]);
    g_free (self);
}

size_t ecfs_checkup_bytes (const EcfsContentCheckup *self)
{
    return sizeof *self + (self->codeword == NULL ? 0 : ecfs_codeword_bytes (self->params.codec, &self->params.layout));
}

uint64_t ecfs_checkup_await (EcfsContentCheckup *self, const EcfsCheckedStripe *checked, uint64_t segment)
{
    return self->codeword == NULL
               ? ecfs_layout_n_segments (&self->params.layout)
               : ecfs_codeword_await (self->codeword, checked->stripe->index, segment, self->cancelled);
}

void ecfs_checkup_take (EcfsContentCheckup *self, const EcfsCheckedStripe *checked, uint64_t segment, uint32_t block,
                        const uint8_t *bytes, uint32_t size)
{
    if (self->codeword == NULL)
        ecfs_sha256_update (self->areas[checked->stripe->index], bytes, size);
    else
        ecfs_codeword_take (self->codeword, checked->stripe->index, segment, block, bytes);
}

void ecfs_checkup_leave (EcfsContentCheckup *self, const EcfsCheckedStripe *checked, bool fine)
{
    self->fine[checked->stripe->index] = fine;
    if (self->codeword != NULL)
        ecfs_codeword_leave (self->codeword, checked->stripe->index);
}

/* What is found */

static bool goes_on (void *user, uint64_t bytes)
{
    const EcfsContentCheckup *self = user;
    return ecfs_pace_wait (self->pace, bytes, self->cancelled);
}

/* What was read and was fine is told as it is; what was not read now is left to the caller. */
static void blame (EcfsContentCheckup *self, const bool *lies, EcfsCheckedContent *ret_content)
{
    for (guint i = 0; i < self->n; i++) {
        EcfsCheckedStripe *checked = stripe_at (self, i);
        if (!lies[checked->stripe->index] ||
            (self->reads[checked->stripe->index] && !self->fine[checked->stripe->index]))
            continue;
        if (!self->reads[checked->stripe->index]) {
            ret_content->lies = ret_content->lies != NULL ? ret_content->lies : g_new0 (bool, ECFS_CODEC_MAX_N);
            ret_content->lies[checked->stripe->index] = true;
            continue;
        }
        ecfs_checked_forged (checked);
    }
}

static void find_liars (EcfsContentCheckup *self, EcfsCheckedContent *ret_content)
{
    bool lies[ECFS_CODEC_MAX_N] = {false};
    g_autoptr (GError) error = NULL;
    const EcfsLiars liars = {.params = &self->params, .sha256 = self->object->sha256, .tick = goes_on, .user = self};
    if (ecfs_liars_find (&liars, ecfs_codec_tolerance (self->params.codec), lies, &error))
        blame (self, lies, ret_content);
    else if (error->code != ECANCELED)
        ret_content->problem = g_strdup (error->message);
}

/* Of stripes that do not determine the content: they are compared with those that reading it gives. */
static void compare_parts (EcfsContentCheckup *self, EcfsCheckedContent *ret_content)
{
    EcfsTrueStripes truth;
    bool lies[ECFS_CODEC_MAX_N] = {false};
    uint8_t found[ECFS_SHA256_SIZE];
    g_autoptr (GError) error = NULL;
    const EcfsLiars liars = {.params = &self->params, .sha256 = self->object->sha256, .tick = goes_on, .user = self};
    if (!ecfs_true_stripes (&liars, NULL, &truth, &error)) {
        if (error->code == EBADMSG) /* else it cannot be read now, and what is wrong is told */
            find_liars (self, ret_content);
        return;
    }
    for (unsigned i = 0; i < ecfs_codec_n (self->params.codec); i++) {
        if (!self->fine[i])
            continue;
        ecfs_sha256_end (self->areas[i], found);
        lies[i] = memcmp (found, truth.sha256[i], sizeof found) != 0;
    }
    blame (self, lies, ret_content);
}

/* Content without a SHA-256: all stripes have to say the same. */
static void compare_stripes (const EcfsContentCheckup *self, const EcfsCodewordResult *result,
                             EcfsCheckedContent *ret_content)
{
    bool differs = false, all_fine = result->agrees;
    for (unsigned i = 0; i < ecfs_codec_n (self->params.codec); i++) {
        differs = differs || (self->fine[i] && result->differs[i]);
        all_fine = all_fine && self->fine[i];
    }
    ret_content->is_new = all_fine;
    memcpy (ret_content->sha256, result->sha256, sizeof result->sha256);
    if (differs)
        ret_content->problem =
            g_strdup ("its checksums fit, but its stripes disagree: an endpoint returns other bytes than it got, and "
                      "without a stored SHA-256 of the content nothing shows which");
}

void ecfs_checkup_end (EcfsContentCheckup *self, EcfsCheckedContent *ret_content)
{
    EcfsCodewordResult result;
    *ret_content = (EcfsCheckedContent){.object = self->object};
    if (atomic_load (self->cancelled))
        return;
    if (self->codeword == NULL) {
        compare_parts (self, ret_content);
        return;
    }
    ecfs_codeword_end (self->codeword, &result);
    if (!result.is_known) /* what is missing or damaged is told */
        return;
    if (!self->object->has_sha256)
        compare_stripes (self, &result, ret_content);
    else if (memcmp (result.sha256, self->object->sha256, sizeof result.sha256) == 0)
        blame (self, result.differs, ret_content);
    else
        find_liars (self, ret_content);
}
