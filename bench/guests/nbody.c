// Planets: square roots, divisions, doubles in memory.
#include "measure.h"

#include <math.h>
#include <stdio.h>

static struct { double x[3], v[3], mass; } bodies[5] = {
    {{0, 0, 0}, {0, 0, 0}, 39.47841760435743},
    {{4.84143144246472090, -1.16032004402742839, -0.103622044471123109}, {0.606326392995832, 2.81198684491626, -0.02521836165988763}, 0.03769367487038949},
    {{8.34336671824457987, 4.12479856412430479, -0.403523417114321381}, {-1.01077434617879, 1.82566237123041, 0.008415761376584154}, 0.011286326131968767},
    {{12.8943695621391310, -15.1111514016986312, -0.223307578892655734}, {1.08279100644154, 0.868713018169608, -0.010832637401363636}, 0.0017237240570597112},
    {{15.3796971148509165, -25.9193146099879641, 0.179258772950371181}, {0.979090732243898, 0.594698998647676, -0.034755955550407}, 0.0020336868699246304},
};

int main(void) {
    begin();
    int steps = (int)unknown(2000000);
    for (int step = 0; step < steps; step++) {
        for (int i = 0; i < 5; i++)
            for (int j = i + 1; j < 5; j++) {
                double d[3], square = 0;
                for (int k = 0; k < 3; k++) d[k] = bodies[i].x[k] - bodies[j].x[k], square += d[k] * d[k];
                double magnitude = 0.01 / (square * sqrt(square));
                for (int k = 0; k < 3; k++) {
                    bodies[i].v[k] -= d[k] * bodies[j].mass * magnitude;
                    bodies[j].v[k] += d[k] * bodies[i].mass * magnitude;
                }
            }
        for (int i = 0; i < 5; i++)
            for (int k = 0; k < 3; k++) bodies[i].x[k] += 0.01 * bodies[i].v[k];
    }
    keep((unsigned long)(bodies[0].x[0] * 1e6));
    end();
    printf("%.9f %.9f\n", bodies[0].x[0], bodies[1].v[1]);
    return 0;
}
