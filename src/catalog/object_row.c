/* Descriptors as values. */
#include "catalog/db.h"

EcfsObjectRow *ecfs_object_row_new (void)
{
    EcfsObjectRow *row = g_new0 (EcfsObjectRow, 1);
    row->stripes = g_array_new (false, true, sizeof (EcfsStripeRow));
    return row;
}

EcfsObjectRow *ecfs_object_row_copy (const EcfsObjectRow *row)
{
    EcfsObjectRow *copy = g_memdup2 (row, sizeof *row);
    copy->code = g_strdup (row->code);
    copy->stripes = g_array_copy (row->stripes);
    return copy;
}

void ecfs_object_row_free (EcfsObjectRow *row)
{
    if (row == NULL)
        return;
    g_free (row->code);
    g_clear_pointer (&row->stripes, g_array_unref);
    g_free (row);
}
