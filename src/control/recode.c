/* `recode` on the control socket. */
#include "verbs/recode.h"
#include "control/control_priv.h"

static bool serve (const EcfsControlClient *client, JsonObject *request, const EcfsTransferOptions *transfer,
                   GError **error)
{
    const char *text = ecfs_control_text (request, "path");
    g_autofree char *path = text == NULL ? NULL : ecfs_control_unescape (text);
    const EcfsRecodeHere what = {.path = path,
                                 .code = ecfs_control_text (request, "code"),
                                 .transfer = transfer,
                                 .changed = client->ops->names.changed,
                                 .user = client->ops->names.user};
    bool seals = ecfs_control_flag (request, "seal");
    if (ecfs_control_flag (request, "policy") && path != NULL)
        return ecfs_policy_here (client->archive, &what, error);
    return ((path != NULL && seals == (what.code == NULL)) ||
            ecfs_fail (error, EINVAL, "control socket: \"path\", or \"code\" or \"seal\", is missing or wrong")) &&
           ecfs_recode_here (client->archive, &what, error);
}

void ecfs_control_recode (const EcfsControlClient *client, EcfsLines *lines, JsonObject *request)
{
    ecfs_control_serve_transfer (client, lines, request, serve);
}
