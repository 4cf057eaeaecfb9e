/*
 * Endpoints that answer and take nothing: full ones, read-only ones, bad disks. Told once when it begins and once when
 * it ends.
 *
 * Where an endpoint gives figures of its space, these decide for each file whether it fits, and being full is what is
 * told of it, from the first that does not fit until that would fit. A figure that was asked for before a write failed
 * knows nothing of that; one that says afterwards that there is room is believed once. Otherwise, and where it is not
 * about space, it is tried again after a while.
 */
#include "endpoint/core/core.h"

#include <inttypes.h>

#define RETRY_MIN_US (5 * G_USEC_PER_SEC)
#define RETRY_MAX_US (60 * G_USEC_PER_SEC)
#define MARGIN_BYTES (256 * 1024) /* what is left is never known exactly */

static bool is_full (int code)
{
    return code == ENOSPC || code == EDQUOT;
}

/* Whether the failure of a write says something about the endpoint, and not about a line, a file or this machine. */
static bool tells (int code)
{
    switch (code) {
    case ECANCELED:
    case ENOTCONN:
    case ETIMEDOUT:
    case EEXIST:
    case EINVAL:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        return false;
    default:
        return true;
    }
}

static bool figures_decide_locked (const EcfsEndpoint *self) ECFS_REQUIRES (self->lock)
{
    return self->refusal.code == ENOSPC && !self->refusal.hidden && self->space.told;
}

bool ecfs_core_refuses_locked (EcfsEndpoint *self)
{
    return self->refusal.code != 0 && !figures_decide_locked (self) && ecfs_now_us () < self->refusal.retry_us;
}

bool ecfs_core_full_locked (EcfsEndpoint *self)
{
    return is_full (self->refusal.code);
}

uint64_t ecfs_core_free_locked (EcfsEndpoint *self)
{
    return self->space.free_bytes - MIN (self->space.free_bytes, self->write_meter.total - self->space_written);
}

static void end_locked (EcfsEndpoint *self) ECFS_REQUIRES (self->lock)
{
    if (self->refusal.code == 0)
        return;
    g_message ("endpoint %s %s again", self->name, ecfs_core_full_locked (self) ? "has room" : "takes stripes");
    g_clear_pointer (&self->refusal.text, g_free);
    self->refusal = (Refusal){.code = 0, .roomy_us = self->refusal.roomy_us};
}

/* @text is taken. */
static void begin_locked (EcfsEndpoint *self, int code, char *text, uint64_t bytes) ECFS_REQUIRES (self->lock)
{
    Refusal *refusal = &self->refusal;
    int64_t now_us = ecfs_now_us ();
    bool full = is_full (code);
    bool news = refusal->code == 0 || full != is_full (refusal->code);
    int64_t pause_us = news ? RETRY_MIN_US : MIN (2 * refusal->pause_us, RETRY_MAX_US);
    g_free (refusal->text);
    refusal->code = code;
    refusal->text = text;
    refusal->pause_us = pause_us;
    refusal->retry_us = now_us + pause_us;
    refusal->needs_bytes = MAX (news ? 0 : refusal->needs_bytes, bytes + MARGIN_BYTES);
    if (news && full)
        g_message ("endpoint %s is full: what does not fit goes to others; make room there or add an endpoint (%s)",
                   self->name, text);
    else if (news)
        g_message ("endpoint %s takes no stripes, others get them; check its disk and permissions (%s)", self->name,
                   text);
}

void ecfs_core_note_stored_locked (EcfsEndpoint *self, uint64_t bytes)
{
    /* A small file that fits says nothing about what did not. */
    if (!is_full (self->refusal.code) || bytes + MARGIN_BYTES >= self->refusal.needs_bytes)
        end_locked (self);
}

/* Of a log, what is not durable: the rest fitted. */
static uint64_t refused_bytes (const EcfsStream *request)
{
    return request->kind == ECFS_REQUEST_LOG ? request->pulled - request->acknowledged
                                             : MAX (request->source.size, request->pulled);
}

void ecfs_core_note_write_locked (EcfsEndpoint *self, const EcfsStream *request, const GError *error)
{
    Refusal *refusal = &self->refusal;
    if (error == NULL) {
        ecfs_core_note_stored_locked (self, request->pulled);
        return;
    }
    if (!tells (error->code) || (request->kind == ECFS_REQUEST_LOG && error->code == ENOTSUP))
        return;
    int64_t now_us = ecfs_now_us ();
    refusal->hidden = error->code == EDQUOT || (error->code == ENOSPC && refusal->hidden);
    refusal->doubted =
        refusal->roomy_us != 0 && refusal->roomy_us <= request->taken_us && now_us - refusal->roomy_us < RETRY_MAX_US;
    refusal->failed_us = now_us;
    if (error->code == ENOSPC && self->space.told)
        self->space.free_bytes = 0; /* the next figure will tell */
    begin_locked (self, error->code, g_strdup (error->message), refused_bytes (request));
}

/* Quotas and inodes are in no figure: so is what fails again where figures say that there is room, before and after. */
static void weigh_figure_locked (EcfsEndpoint *self) ECFS_REQUIRES (self->lock)
{
    Refusal *refusal = &self->refusal;
    if (self->space.free_bytes < refusal->needs_bytes) {
        refusal->hidden = refusal->doubted = false;
    } else if (refusal->doubted) {
        refusal->hidden = true;
    } else if (!refusal->hidden) {
        refusal->roomy_us = refusal->failed_us != 0 ? ecfs_now_us () : 0;
        end_locked (self);
    }
}

/* What the archive may still use, whatever the endpoint says; nobody knows as long as the archive has not counted. */
static void limit_locked (const EcfsEndpoint *self, uint64_t written, EcfsEndpointSpace *space)
    ECFS_REQUIRES (self->lock)
{
    uint64_t used = self->used + (written - MIN (written, self->used_written));
    uint64_t left = self->capacity - MIN (self->capacity, used);
    if (self->capacity == 0)
        return;
    if (!space->told || left < space->free_bytes) {
        space->free_bytes = left;
        space->device = 0; /* what others write there takes nothing from it */
    }
    space->asked = space->told = self->used_known;
}

void ecfs_core_note_space_locked (EcfsEndpoint *self, const EcfsStream *request, const EcfsEndpointSpace *told)
{
    bool full = self->refusal.code == ENOSPC;
    EcfsEndpointSpace limited = *told, *space = &limited;
    limit_locked (self, request->written_before, space);
    if (full && space->told && request->taken_us < self->refusal.failed_us)
        return;
    self->space = *space;
    self->space_written = request->written_before;
    if (full && space->told)
        weigh_figure_locked (self);
}

uint64_t ecfs_endpoint_capacity (const EcfsEndpoint *self)
{
    return self->capacity;
}

void ecfs_endpoint_note_used (EcfsEndpoint *self, uint64_t bytes, uint64_t written_bytes)
{
    ecfs_mutex_lock (&self->lock);
    self->used = bytes;
    self->used_written = written_bytes;
    self->used_known = true;
    ecfs_mutex_unlock (&self->lock);
}

bool ecfs_endpoint_has_room (EcfsEndpoint *self, uint64_t bytes)
{
    ecfs_mutex_lock (&self->lock);
    uint64_t free_bytes = ecfs_core_free_locked (self);
    bool fits = !self->space.told || free_bytes >= bytes + MARGIN_BYTES;
    if (!fits && figures_decide_locked (self))
        self->refusal.needs_bytes = MAX (self->refusal.needs_bytes, bytes + MARGIN_BYTES);
    else if (!fits && self->refusal.code == 0)
        begin_locked (self, ENOSPC,
                      g_strdup_printf ("endpoint %s: %" PRIu64 " bytes do not fit into the %" PRIu64 " that are left%s",
                                       self->name, bytes, free_bytes, self->capacity > 0 ? " of its capacity" : ""),
                      bytes);
    ecfs_mutex_unlock (&self->lock);
    return fits;
}
