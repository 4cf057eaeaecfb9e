/*
 * How old the catalog is: a clock that no change of the time of day can move, for what has to wait before it is
 * deleted.
 *
 * Within one boot of the machine CLOCK_BOOTTIME tells what has passed. From one boot to the next (or to another
 * machine) it is what both clocks agree on: no more than the time of day says, and no more than this boot has lasted.
 * So the age never runs ahead of time; where it stays behind, what is to be deleted stays a little longer.
 */
#include "catalog/age.h"

#include <time.h>

#define NOTE_EVERY_NS (INT64_C (60) * 1000000000) /* what a crash before a reboot can cost */
#define TELL_EVERY_NS (INT64_C (10) * 1000000000) /* members ask as often, and are told as often */
#define SANE_AGE      (INT64_MAX / 2)

static int64_t clock_ns (clockid_t clock)
{
    struct timespec now;
    (void) clock_gettime (clock, &now); /* cannot fail with the clocks that are asked here */
    return MAX ((int64_t) now.tv_sec * 1000000000 + now.tv_nsec, 0);
}

/* Nil where the kernel does not tell, which then equals no other boot. */
static EcfsUuid boot_id (void)
{
    EcfsUuid boot = {{0}};
    g_autofree char *text = NULL;
    if (g_file_get_contents ("/proc/sys/kernel/random/boot_id", &text, NULL, NULL))
        (void) ecfs_uuid_parse (g_strstrip (text), &boot); /* stays nil */
    return boot;
}

static bool is_same_boot (const CatalogAge *noted, const CatalogAge *now)
{
    return ecfs_uuid_equal (&noted->boot, &now->boot) && !ecfs_uuid_is_nil (&now->boot);
}

int64_t ecfs_age_since (const CatalogAge *noted, const CatalogAge *now)
{
    int64_t passed_ns =
        is_same_boot (noted, now) ? now->boot_ns - noted->boot_ns : MIN (now->real_ns - noted->real_ns, now->boot_ns);
    return noted->age_ns + MAX (passed_ns, 0);
}

static bool read_age (EcfsCatalog *self, CatalogAge *ret_noted, GError **error)
{
    uint64_t age_ns, boot_ns, real_ns;
    autoquery *query = ecfs_query (self, STMT_AGE_GET, NULL, 0, error);
    int found = ecfs_query_step (self, query, error);
    if (found < 0)
        return false;
    if (found == 0 || !ecfs_column_bytes (query, 0, ret_noted->boot.bytes, sizeof ret_noted->boot.bytes) ||
        !ecfs_column_u64 (query, 1, SANE_AGE, &boot_ns) || !ecfs_column_u64 (query, 2, INT64_MAX, &real_ns) ||
        !ecfs_column_u64 (query, 3, SANE_AGE, &age_ns))
        return ecfs_bad_row (error, "age", 1, "is missing or impossible");
    ret_noted->boot_ns = (int64_t) boot_ns;
    ret_noted->real_ns = (int64_t) real_ns;
    ret_noted->age_ns = (int64_t) age_ns;
    return true;
}

bool ecfs_age_load (EcfsCatalog *self, GError **error)
{
    CatalogAge noted;
    if (!read_age (self, &noted, error))
        return false;
    CatalogAge now = {.boot = boot_id (), .boot_ns = clock_ns (CLOCK_BOOTTIME), .real_ns = clock_ns (CLOCK_REALTIME)};
    now.age_ns = ecfs_age_since (&noted, &now);
    self->age = now;
    self->noted_age_ns = is_same_boot (&noted, &now) ? noted.age_ns : INT64_MIN;
    return true;
}

/* What another tells is as old as it may be, so that nothing that is queued here is due too early by the clock of who
 * leads. */
bool ecfs_age_is_due (const EcfsCatalog *self)
{
    return !ecfs_leads (self) &&
           (self->followed_ns <= 0 || clock_ns (CLOCK_BOOTTIME) - self->followed_ns >= TELL_EVERY_NS);
}

bool ecfs_age_follow (EcfsCatalog *self, GError **error)
{
    CatalogAge noted;
    int64_t boot_ns = clock_ns (CLOCK_BOOTTIME);
    if (!ecfs_age_is_due (self))
        return true;
    if (!read_age (self, &noted, error))
        return false;
    self->followed_ns = boot_ns;
    self->age.boot_ns = boot_ns;
    self->age.age_ns = noted.age_ns + 2 * TELL_EVERY_NS;
    return true;
}

/* Time in which nobody led does not count. */
bool ecfs_age_inherit (EcfsCatalog *self, GError **error)
{
    CatalogAge noted;
    if (!read_age (self, &noted, error))
        return false;
    self->age.boot_ns = clock_ns (CLOCK_BOOTTIME);
    self->age.real_ns = clock_ns (CLOCK_REALTIME);
    self->age.age_ns = noted.age_ns;
    self->noted_age_ns = INT64_MIN;
    return true;
}

int64_t ecfs_age_ns (const EcfsCatalog *self)
{
    return self->age.age_ns + MAX (clock_ns (CLOCK_BOOTTIME) - self->age.boot_ns, 0);
}

static bool is_noted (const EcfsCatalog *self)
{
    const int64_t every_ns = self->is_member ? TELL_EVERY_NS : NOTE_EVERY_NS;
    return !ecfs_leads (self) || self->inherits ||
           (self->noted_age_ns >= 0 && ecfs_age_ns (self) - self->noted_age_ns < every_ns);
}

bool ecfs_age_note (EcfsCatalog *self, GError **error)
{
    int64_t age_ns = ecfs_age_ns (self);
    if (is_noted (self))
        return true;
    if (!EXEC (self, AGE_SET, error, UUID (&self->age.boot), INT (clock_ns (CLOCK_BOOTTIME)),
               INT (clock_ns (CLOCK_REALTIME)), INT (age_ns)))
        return false;
    self->noted_age_ns = age_ns; /* too early where the operation is undone, which costs one turn */
    return true;
}

bool ecfs_catalog_note_age (EcfsCatalog *self, GError **error)
{
    return READ (self, is_noted (self)) || CHANGE (self, error, ecfs_age_note (self, error));
}

int64_t ecfs_catalog_age_ns (EcfsCatalog *self)
{
    ecfs_mutex_lock (&self->lock);
    int64_t age_ns = ecfs_age_ns (self);
    ecfs_mutex_unlock (&self->lock);
    return age_ns;
}
