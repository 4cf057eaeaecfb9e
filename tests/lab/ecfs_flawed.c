/* Makes the ecfs that this is linked into know the schemes of flawed.h. */
#include "flawed.h"

__attribute__ ((constructor)) static void register_early (void)
{
    flawed_register ();
}
