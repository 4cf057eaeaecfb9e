/* `undelete` on the control socket. */
#include "verbs/undelete.h"
#include "control/control_priv.h"

static bool serve (const EcfsControlClient *client, JsonObject *request, const EcfsTransferOptions *transfer,
                   GError **error)
{
    const char *path_text = ecfs_control_text (request, "path"), *past_text = ecfs_control_text (request, "past");
    g_autofree char *path = path_text == NULL ? NULL : ecfs_control_unescape (path_text);
    g_autofree char *past = past_text == NULL ? NULL : ecfs_control_unescape (past_text);
    const EcfsUndeleteHere what = {.past = past,
                                   .path = path,
                                   .keep = ecfs_control_flag (request, "keep"),
                                   .transfer = transfer,
                                   .watch = &client->ops->names};
    return ((path != NULL && past != NULL) ||
            ecfs_fail (error, EINVAL, "control socket: \"path\" or \"past\" is missing or wrong")) &&
           ecfs_undelete_here (client->archive, &what, error);
}

void ecfs_control_undelete (const EcfsControlClient *client, EcfsLines *lines, JsonObject *request)
{
    ecfs_control_serve_transfer (client, lines, request, serve);
}
