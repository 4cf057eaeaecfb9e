/* What facts say of a mount that does not answer, and of directories that only read what another machine writes. */
#include "util/text.h"
#include "verbs/verdict_priv.h"

#include <inttypes.h>
#include <string.h>

void ecfs_verdict_judge_silent_mount (EcfsStatusVerdict *self)
{
    JsonObject *silent = ecfs_verdict_part (self->status, "silent_mount");
    if (silent == NULL)
        return;
    const char *mountpoint = ecfs_verdict_text (silent, "mountpoint");
    int64_t pid = ecfs_verdict_number (silent, "pid");
    bool stopped = json_object_get_boolean_member_with_default (silent, "stopped", FALSE);
    g_autofree char *place = *mountpoint == '\0' ? g_strdup ("") : g_strdup_printf (" on %s", mountpoint);
    EcfsStatusProblem problem = {.kind = "silent-mount", .verdict = "unreadable", .check = 2};
    problem.reason = g_strdup_printf ("the mount%s does not answer: its process, %" PRIi64 ", %s", place, pid,
                                      stopped ? "was stopped" : "hangs");
    problem.meaning = g_strdup ("Nothing can be read or written through it, and it stores nothing. What else is said "
                                "here is as without a mount.");
    if (stopped) {
        problem.advice = g_strdup ("Let it go on:");
        problem.action = g_strdup_printf ("kill -CONT %" PRIi64, pid);
    } else {
        problem.advice = g_strdup_printf ("If it stays so, 'kill -KILL %" PRIi64 "' ends it, and the next mount goes "
                                          "on with what it has staged. To see what it waits for:",
                                          pid);
        problem.action = g_strdup_printf ("ps -o pid,stat,wchan:32,args -p %" PRIi64, pid);
    }
    ecfs_verdict_add (self, &problem);
}

bool ecfs_verdict_only_reads (EcfsStatusVerdict *self)
{
    return json_object_has_member (self->status, "read_only");
}

bool ecfs_verdict_cannot_follow (EcfsStatusVerdict *self)
{
    JsonObject *follow = ecfs_verdict_part (self->status, "follow");
    return follow != NULL && json_object_get_boolean_member_with_default (follow, "lives", FALSE) &&
           *ecfs_verdict_text (follow, "trouble") != '\0';
}

/* The journal tells under the old key that there is to be another one, and goes on under that. */
static bool lacks_key (EcfsStatusVerdict *self)
{
    return json_object_has_member (self->status, "key_begun") || json_object_has_member (self->status, "key_rotates");
}

void ecfs_verdict_judge_follow (EcfsStatusVerdict *self)
{
    if (!ecfs_verdict_cannot_follow (self))
        return;
    JsonObject *follow = ecfs_verdict_part (self->status, "follow");
    EcfsStatusProblem problem = {.kind = "follow", .verdict = "degraded", .check = 1};
    problem.reason = g_strdup_printf ("what is new cannot be followed%s: %s",
                                      lacks_key (self) ? ", as the archive gets another key" : "",
                                      ecfs_verdict_text (follow, "trouble"));
    problem.meaning = g_strdup_printf ("Files are as they were at change %" PRIi64 ". No file is lost by that.",
                                       ecfs_verdict_number (follow, "sequence"));
    problem.advice =
        g_strdup_printf ("%s, make the directory anew: unmount and remove it, then mount it with --follow "
                         "and --endpoint as the first time.",
                         lacks_key (self) ? "When 'ecfs key' has ended there"
                                          : "If endpoints are away, it goes on when they are back. After a "
                                            "change of the archive's key ('ecfs key rotate')");
    ecfs_verdict_add (self, &problem);
}

void ecfs_verdict_advise_reader (JsonObject *away, const char *directory, EcfsStatusProblem *problem)
{
    const char *name = ecfs_verdict_text (away, "name");
    g_autofree char *word = ecfs_shell_word (name);
    if (strstr (name, " (replaced, ") != NULL) {
        problem->advice = g_strdup ("Whoever writes the archive rebuilds what it held.");
    } else if (g_str_equal (ecfs_verdict_text (away, "state"), "unconfigured")) {
        problem->advice = g_strdup_printf ("Add a section for %s to ecfs.conf, and mount again.", name);
    } else {
        problem->advice = g_strdup ("Bring it back; then you need to do nothing else. If it is lost, whoever writes "
                                    "the archive replaces it. To try it now:");
        problem->action = g_strdup_printf ("ecfs endpoint test %s %s", directory, word);
    }
}

/* Whether it has a command that a directory for reading only refuses. */
static bool changes_something (JsonObject *problem)
{
    static const char *const commands[] = {
        "ecfs endpoint replace", "ecfs endpoint drain", "ecfs endpoint add", "ecfs endpoint distrust",
        "ecfs fsck -y",          "ecfs key ",           "ecfs wait ",        "ecfs mount "};
    for (size_t i = 0; i < G_N_ELEMENTS (commands); i++)
        if (strstr (ecfs_verdict_text (problem, "action"), commands[i]) != NULL)
            return true;
    return false;
}

void ecfs_verdict_leave_to_writer (EcfsStatusVerdict *self)
{
    for (guint i = 0; ecfs_verdict_only_reads (self) && i < json_array_get_length (self->problems); i++) {
        JsonObject *problem = json_array_get_object_element (self->problems, i);
        if (!changes_something (problem))
            continue;
        json_object_set_string_member (problem, "advice",
                                       "This directory only reads. On the machine that writes the archive, 'ecfs "
                                       "status' says what to do.");
        json_object_remove_member (problem, "action");
    }
}
