/* Prints every kind of line of report.h, with special characters, for the test of the helpers. */
#include "report.h"

#include <math.h>
#include <string.h>

int main(void) {
    char longer[5000];
    const report_peer_t peers[] = {{"cudaMalloc \"bare\"", 1.5}, {"none", NAN}, {NULL, 0}};
    memset(longer, '"', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    report_pass("pass", "quote \" backslash \\ tab \t newline \n bell \a %s", "caf\xc3\xa9");
    report_skip("skip", "needs a GPU");
    report_answer("answer_wanted", true, true, "as it should");
    report_fact("fact", false, "%d of %d", 0, 3);
    report_value("value", 1e-9, "s", "tiny");
    report_figure("figure", 59.5, "ns", 60, peers, "below");
    report_pass("long", "%s", longer);
    if (report_end() != 0) /* nothing failed so far */
        return 2;
    report_fail("fail", "because");
    report_answer("answer_unwanted", true, false, "not as it should");
    report_figure("figure_above", 60.5, "ns", 60, NULL, "above");
    report_figure("figure_none", NAN, "ns", 0, NULL, "nothing measured");
    return report_end();
}
