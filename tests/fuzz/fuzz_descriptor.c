/* Descriptor files of either form: refused, or whatever is taken makes sense. */
#include "verbs/descriptor.h"

#include <string.h>

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsDescriptor) first = ecfs_descriptor_parse ((const char *) bytes, size, &error);
    if (first == NULL) {
        g_assert_cmpint (ecfs_errno (error), !=, 0);
        return 0;
    }
    g_assert_true (ecfs_descriptor_check (first, NULL));
    g_autofree char *fec = ecfs_descriptor_format_fec (first, &error);
    g_assert_true (fec != NULL || ecfs_errno (error) == ENOTSUP);
    return 0;
}
