import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** One client process of HDFS: for each line of standard input, puts a file, gets it and removes it; prints the seconds of put and get. */
public class HdfsRounds {
  public static void main(String[] args) throws Exception {
    Path source = new Path("file://" + args[0]), target = new Path("file://" + args[1]), stored = new Path("/large");
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    try (FileSystem hdfs = FileSystem.get(new Configuration())) {
      System.out.println("ready");
      while (lines.readLine() != null) {
        long begun = System.nanoTime();
        hdfs.copyFromLocalFile(false, true, source, stored);
        // The last argument: no file of checksums beside the target.
        hdfs.copyToLocalFile(false, stored, target, true);
        double seconds = (System.nanoTime() - begun) / 1e9;
        short replication = hdfs.getFileStatus(stored).getReplication();
        if (replication != 2) throw new IllegalStateException("the file has " + replication + " replicas");
        hdfs.delete(stored, false);
        System.out.println(seconds);
      }
    }
  }
}
