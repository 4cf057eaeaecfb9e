/*
 * Makes the ecfs that this is linked into know the schemes of flawed.h. With ECFS_LAB_HASTE=N the claims of recoveries
 * are made, looked at and given up N times as fast.
 */
#include "archive/lineage.h"
#include "flawed.h"
#include "recover/recover_priv.h"

static void hurry (void)
{
    _Atomic int64_t *const times[] = {&ecfs_lineage_again_us, &ecfs_lineage_claim_us, &ecfs_recover_renew_us,
                                      &ecfs_recover_patience_us, &ecfs_recover_look_us};
    uint64_t haste = g_ascii_strtoull (g_getenv ("ECFS_LAB_HASTE"), NULL, 10);
    if (haste == 0)
        g_error ("ECFS_LAB_HASTE is no number");
    for (size_t i = 0; i < G_N_ELEMENTS (times); i++)
        *times[i] /= (int64_t) haste;
}

__attribute__ ((constructor)) static void register_early (void)
{
    flawed_register ();
    if (g_getenv ("ECFS_LAB_HASTE") != NULL)
        hurry ();
}
