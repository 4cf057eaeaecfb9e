/*
 * The conformance suite over rclone://, with remotes of three kinds, and one on a line that comes and goes.
 *
 * ECFS_RCLONE=all runs everything for every row.
 */
#include "conformance.h"
#include "rclone_fixture.h"

static ConformanceRow row (const Rclone *rclone, const char *name, const char *url, const char *path)
{
    return (ConformanceRow){.name = g_strconcat ("rclone-", name, NULL),
                            .url = g_strdup (url),
                            .options = rclone_options (rclone),
                            .path = g_strdup (path),
                            .brief = g_strcmp0 (g_getenv ("ECFS_RCLONE"), "all") != 0};
}

static void add_disk (const Rclone *rclone)
{
    g_autofree char *url = g_strconcat ("rclone://disk/", rclone->disk, NULL);
    ConformanceRow disk = row (rclone, "local", url, rclone->disk);
    disk.brief = false;
    conformance_add (disk);
}

static void add_boxes (Rclone *rclone)
{
    g_autofree char *url = g_strconcat ("rclone://box/", rclone->sshd->root, NULL);
    g_autofree char *far_url = g_strconcat ("rclone://far/", rclone->sshd->root, NULL);
    conformance_add (row (rclone, "sftp", url, rclone->sshd->root));
    ConformanceRow far = row (rclone, "sftp-unsteady", far_url, rclone->sshd->root);
    far.proxy = lab_proxy_new (rclone->sshd->port);
    rclone_add_box (rclone, "far", far.proxy->port);
    conformance_add (far);
}

int main (int argc, char **argv)
{
    conformance_init (&argc, &argv);
    Rclone *rclone = rclone_new ();
    if (rclone != NULL)
        add_disk (rclone);
    if (rclone != NULL && rclone->sshd != NULL)
        add_boxes (rclone);
    if (rclone != NULL && rclone->s3 != NULL) {
        conformance_add (row (rclone, "s3", "rclone://bucket", rclone->s3->root));
    } else if (rclone != NULL) {
        conformance_lacks ("rclone-s3", "there is no S3 server: install python3-botocore");
    }
    int result = conformance_run ("there is no rclone: install rclone");
    rclone_free (rclone);
    return result;
}
