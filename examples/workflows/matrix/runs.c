/* Prints each run of equal bytes of its input as a line: its length and the value of the byte. */
#include <stdio.h>

int main(void) {
    int byte, last = EOF;
    unsigned long length = 0;
    while ((byte = getchar()) != EOF) {
        if (byte != last && length > 0) {
            printf("%lu %d\n", length, last);
            length = 0;
        }
        last = byte;
        length++;
    }
    if (length > 0) {
        printf("%lu %d\n", length, last);
    }
    return 0;
}
