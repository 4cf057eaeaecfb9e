/* Names that connections of one endpoint are about to make: for protocols whose commit looks first and renames then. */
#ifndef ECFS_ENDPOINT_CORE_CLAIMS_H
#define ECFS_ENDPOINT_CORE_CLAIMS_H

#include <stdbool.h>

typedef struct EcfsClaims EcfsClaims;

/** Thread-safe, as all here but the freeing. */
EcfsClaims *ecfs_claims_new (void);
void ecfs_claims_free (EcfsClaims *self);
/** From here until ecfs_claims_release () nobody else can have @name. False: somebody has it. */
bool ecfs_claims_take (EcfsClaims *self, const char *name);
void ecfs_claims_release (EcfsClaims *self, const char *name);

#endif
