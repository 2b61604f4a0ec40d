#include <stdio.h>

int main(void)
{
    fputs("usage: birkhoff train|plan|check [options]\n", stderr);
    return 2;
}
