import got from 'got';
import { serve } from './lines.mjs';

serve(async (url, headers, body) => {
  const answer = await got.post(url, {
    headers, body, throwHttpErrors: false, retry: { limit: 5, methods: ['POST'] },
  });
  return [answer.statusCode, answer.body];
});
