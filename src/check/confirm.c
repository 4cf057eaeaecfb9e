/*
 * Before a stripe counts as gone: a listing ends early where a directory cannot be read, and is empty where a disk was
 * unmounted behind a connection that lives on. So what listings lack is asked for by its name, and where it is gone
 * indeed, the endpoint has to tell anew who it is.
 */
#include "check/check.h"

typedef struct Confirmation {
    EcfsCheckBatch *batch;
    EcfsPending answers;
} Confirmation;

typedef struct SizeQuestion {
    Confirmation *confirmation;
    EcfsCheckedStripe *checked;
} SizeQuestion;

typedef struct MarkerQuestion {
    Confirmation *confirmation;
    const EcfsArchiveEndpoint *endpoint; /* NULL: not asked */
    char *doubt; /* why what it said means nothing; NULL: it does; guarded by the answers' lock */
} MarkerQuestion;

static void on_size (void *user, uint64_t size, const GError *error)
{
    SizeQuestion *question = user;
    Confirmation *self = question->confirmation;
    ecfs_mutex_lock (&self->answers.lock);
    if (error == NULL)
        ecfs_checked_size (question->checked, size);
    else if (error->code != ENOENT)
        ecfs_checked_unknown (question->checked, error->message);
    ecfs_pending_note_locked (&self->answers);
    ecfs_mutex_unlock (&self->answers.lock);
}

static char *doubt_of (const MarkerQuestion *question, const EcfsMarker *marker, const GError *error)
{
    const EcfsCatalog *catalog = ecfs_archive_catalog (question->confirmation->batch->archive);
    const EcfsArchiveEndpoint *endpoint = question->endpoint;
    if (error != NULL && error->code == ENOENT)
        return g_strdup_printf ("endpoint %s: has no " ECFS_MARKER_NAME " file any more: not mounted?", endpoint->name);
    if (error != NULL)
        return g_strdup (error->message);
    bool same = ecfs_uuid_equal (&marker->archive, ecfs_catalog_archive (catalog)) &&
                ecfs_uuid_equal (&marker->endpoint, &endpoint->uuid);
    return same ? NULL
                : g_strdup_printf ("endpoint %s: its " ECFS_MARKER_NAME " file is that of another", endpoint->name);
}

static void on_marker (void *user, const EcfsMarker *marker, const GError *error)
{
    MarkerQuestion *question = user;
    Confirmation *self = question->confirmation;
    ecfs_mutex_lock (&self->answers.lock);
    question->doubt = doubt_of (question, marker, error);
    ecfs_pending_note_locked (&self->answers);
    ecfs_mutex_unlock (&self->answers.lock);
}

/* All at once: an endpoint has them under way as many at a time as it can. */
static bool ask_for_sizes (Confirmation *self, const GPtrArray *gone)
{
    char name[ECFS_STRIPE_NAME_SIZE];
    g_autofree SizeQuestion *questions = g_new (SizeQuestion, gone->len + 1);
    ecfs_pending_expect (&self->answers, gone->len);
    for (guint i = 0; i < gone->len; i++) {
        EcfsCheckedStripe *checked = g_ptr_array_index (gone, i);
        questions[i] = (SizeQuestion){.confirmation = self, .checked = checked};
        ecfs_stripe_name (&checked->object->uuid, checked->stripe->index, checked->stripe->instance, name);
        ecfs_endpoint_size (ecfs_archive_endpoint (self->batch->archive, checked->position)->endpoint, name, on_size,
                            &questions[i]);
    }
    return ecfs_pending_await (&self->answers, self->batch);
}

/* After the sizes, so that it stands for these answers as well. */
static bool ask_for_markers (Confirmation *self, const GPtrArray *gone, MarkerQuestion *questions)
{
    for (guint i = 0; i < gone->len; i++) {
        const EcfsCheckedStripe *checked = g_ptr_array_index (gone, i);
        MarkerQuestion *question = &questions[checked->position];
        if (checked->fault != ECFS_STRIPE_GONE || question->endpoint != NULL)
            continue;
        question->confirmation = self;
        question->endpoint = ecfs_archive_endpoint (self->batch->archive, checked->position);
        ecfs_pending_expect (&self->answers, 1);
        ecfs_endpoint_examine (question->endpoint->endpoint, on_marker, question);
    }
    return ecfs_pending_await (&self->answers, self->batch);
}

static bool confirm (Confirmation *self, const GPtrArray *gone)
{
    size_t n_endpoints = ecfs_archive_n_endpoints (self->batch->archive);
    g_autofree MarkerQuestion *questions = g_new0 (MarkerQuestion, n_endpoints + 1);
    bool go_on = ask_for_sizes (self, gone) && ask_for_markers (self, gone, questions);
    for (guint i = 0; i < self->batch->stripes->len; i++) {
        EcfsCheckedStripe *checked = &g_array_index (self->batch->stripes, EcfsCheckedStripe, i);
        if (checked->position != SIZE_MAX && questions[checked->position].doubt != NULL)
            ecfs_checked_unknown (checked, questions[checked->position].doubt);
    }
    for (size_t i = 0; i < n_endpoints; i++)
        g_free (questions[i].doubt);
    return go_on;
}

bool ecfs_check_gone (EcfsCheckBatch *batch)
{
    Confirmation self = {.batch = batch};
    g_autoptr (GPtrArray) gone = g_ptr_array_new ();
    for (guint i = 0; i < batch->stripes->len; i++) {
        EcfsCheckedStripe *checked = &g_array_index (batch->stripes, EcfsCheckedStripe, i);
        if (checked->fault == ECFS_STRIPE_GONE)
            g_ptr_array_add (gone, checked);
    }
    ecfs_pending_init (&self.answers);
    bool go_on = gone->len == 0 || confirm (&self, gone);
    ecfs_pending_clear (&self.answers);
    return go_on;
}
