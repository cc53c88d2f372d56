/* Prints count, sum, least and greatest of the integers of its input; fails if anything else stands there. */
#include <stdio.h>

int main(void) {
    long value, count = 0, sum = 0, least = 0, greatest = 0;
    int found;
    while ((found = scanf("%ld", &value)) == 1) {
        least = count == 0 || value < least ? value : least;
        greatest = count == 0 || value > greatest ? value : greatest;
        sum += value;
        count++;
    }
    if (found != EOF) {
        fprintf(stderr, "totals: number %ld is not an integer\n", count + 1);
        return 1;
    }
    printf("%ld %ld %ld %ld\n", count, sum, least, greatest);
    return 0;
}
